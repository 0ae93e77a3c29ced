#!/bin/sh
# Writes the passwords from the environment into the configuration and starts the server with it.
set -eu
: "${SALMON_FRONTEND_PASSWORD:?set it in .env}" "${SALMON_BACKEND_PASSWORD:?set it in .env}"
: "${SALMON_ERASER_PASSWORD:?set it in .env}"
umask 077
sed -e "s|^\(user frontend on >\)REPLACE|\1${SALMON_FRONTEND_PASSWORD}|" \
    -e "s|^\(user backend on >\)REPLACE|\1${SALMON_BACKEND_PASSWORD}|" \
    -e "s|^\(user eraser on >\)REPLACE|\1${SALMON_ERASER_PASSWORD}|" \
    "${SALMON_REDIS_CONF:-/etc/salmon/redis.conf}" >"${SALMON_REDIS_RUN:-/run/salmon}/redis.conf"
exec "${SALMON_REDIS_SERVER:-valkey-server}" "${SALMON_REDIS_RUN:-/run/salmon}/redis.conf"
