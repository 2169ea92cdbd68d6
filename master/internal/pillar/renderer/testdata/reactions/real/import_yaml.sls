{% import_yaml 'reactor/hosts.yaml' as conf %}
{% for host in conf.hosts %}
ping_{{ host }}:
  local.test.ping:
    - tgt: {{ host }}
{% endfor %}
