#!jinja|yaml
restore:
  local.state.single:
    - tgt: {{ data['id'] }}
    - args:
      - fun: file.managed
      - name: {{ data.get('path', '/etc/motd') }}
      - source: salt://motd
    - ret: highstate_return
    - metadata: {why: beacon}
