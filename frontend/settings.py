"""Settings of the web process: read from its environment, once."""

from pathlib import Path
from typing import Literal

from pydantic import Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Settings(BaseSettings):
    """What the web process reads from its environment, once.

    Each variable is `SALMON_` and the name in capitals, such as `SALMON_PUBLIC_URL`.
    """

    model_config = SettingsConfigDict(env_prefix="SALMON_", frozen=True)

    redis_url: str = Field(description="Where Redis is: unix://…, redis:// or rediss:// with user and password.")
    secret: str = Field(
        min_length=16, description="Signs tokens, sessions and invitations; the same on every frontend."
    )
    data: str = Field(default="salmon-data", description="The data directory: media are kept in its folder `media`.")
    host: str = Field(default="127.0.0.1", description="The address to listen on.")
    port: int = Field(default=8421, ge=0, le=65535, description="The port to listen on; 0 selects a free port.")
    public_url: str = Field(default="", description="The address that participants use, if there is a proxy in front.")
    log_level: Literal["DEBUG", "INFO", "WARNING", "ERROR"] = Field(default="INFO", description="What is logged.")
    log_format: Literal["text", "json"] = Field(default="text", description="How a line of the log is written.")

    @property
    def media_location(self) -> str:
        """Where target files are kept."""
        return self._folder("media")

    @property
    def bundles_location(self) -> str:
        """Where the bundles are kept that are written before an experiment is deleted."""
        return self._folder("bundles")

    def _folder(self, name: str) -> str:
        return f"{self.data.rstrip('/')}/{name}" if "://" in self.data else str(Path(self.data) / name)
