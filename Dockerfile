# The demo, and its page:  docker build -t horde . && docker run --rm -p 8420:8420 horde
FROM python:3.11-slim
RUN apt-get update && apt-get install -y --no-install-recommends libgomp1 && rm -rf /var/lib/apt/lists/*
WORKDIR /horde
COPY pyproject.toml README.md LICENSE CHANGELOG.md ./
COPY assets assets
COPY horde_env horde_env
COPY horde_agent horde_agent
RUN pip install --no-cache-dir '.[dash]' && useradd --create-home robot && mkdir /runs && chown robot /runs
USER robot
WORKDIR /runs
ENV NUMBA_CACHE_DIR=/runs/.numba
EXPOSE 8420
# Beyond the container's own loopback the page wants the token that is printed.
CMD ["sh", "-c", "horde learn --steps 60000 --seed 0 --physics planar --out demo & until [ -e demo/live/now.json ]; do sleep 1; done; exec horde watch demo --host 0.0.0.0"]
