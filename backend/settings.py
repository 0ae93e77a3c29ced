"""What the learning process reads from its environment, once."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """Every variable is `SALMON_` and the name in capitals."""

    model_config = SettingsConfigDict(env_prefix="SALMON_", frozen=True)

    redis_url: str = Field(description="Where Redis is: unix://…, redis:// or rediss:// with user and password.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="What is logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="How a line of the log is written.")
    scheduler: str = Field(default="", description="The address of a Dask cluster to join; empty starts a local one.")
