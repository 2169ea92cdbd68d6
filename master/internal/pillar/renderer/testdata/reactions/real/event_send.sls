forward:
  runner.event.send:
    - args:
      - tag: my/{{ tag }}
      - data: {{ data | tojson }}
