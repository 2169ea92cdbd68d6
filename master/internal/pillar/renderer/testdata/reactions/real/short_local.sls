ping:
  local: [test.ping, {tgt: "{{ data['id'] }}"}]
