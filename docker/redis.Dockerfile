FROM valkey/valkey:9.1-alpine
COPY docker/redis.conf docker/redis-start.sh /etc/salmon/
RUN mkdir -p /run/salmon && chown valkey:valkey /run/salmon /data
USER 999:1000
VOLUME /data
ENTRYPOINT ["/etc/salmon/redis-start.sh"]
