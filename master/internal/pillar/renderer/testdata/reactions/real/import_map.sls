{% from "reactor/map.jinja" import targets, notify with context %}
web:
  local.state.sls:
    - tgt: '{{ targets['web'] }}'
    - tgt_type: compound
    - arg: [nginx]
say:
  runner.own.every: {{ notify('new ' ~ tag) }}
