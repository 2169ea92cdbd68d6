{% set count = salt['grains.get']('num_cpus', 1) %}
{%- for n in range(3) %}
step{{ n }}:
  runner.own.every:
    - tgt: {{ n }}
    - name: n{{ n }}
    - timeout: {{ n * 1.5 }}
    - order: {{ 30 - n }}
{%- endfor %}
{{ 'cpus' if count else 'none' }}:
  local.grains.items:
    - tgt: "{{ opts['id'] }}"
