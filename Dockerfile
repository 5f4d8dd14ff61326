# The HTTP service. Build: docker build -t deepsets .
# Run: docker run -p 8000:8000 -e DEEPSETS_TOKEN=$(openssl rand -hex 32) -v $PWD/model:/models/model:ro deepsets /models/model
FROM python:3.12-slim
WORKDIR /app
COPY constraints.txt pyproject.toml README.md LICENSE ./
COPY src ./src
RUN pip install --no-cache-dir --extra-index-url https://download.pytorch.org/whl/cpu -c constraints.txt ".[serve]" \
 && useradd --create-home --uid 10001 deepsets
USER 10001
EXPOSE 8000
HEALTHCHECK --interval=30s --timeout=5s --start-period=60s \
  CMD ["python", "-c", "import urllib.request; urllib.request.urlopen('http://127.0.0.1:8000/healthz', timeout=4)"]
ENTRYPOINT ["deepsets", "serve", "--host", "0.0.0.0"]
