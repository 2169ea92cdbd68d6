post:
  runner.http.query:
    - args:
      - url: https://hooks.example.com/{{ data['id'] }}
      - method: POST
      - data: '{"text": "done"}'
      - status: true
