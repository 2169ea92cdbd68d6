# With Jinja: rendered with the minion's grains.
{% set ports = {'http': 80, 'https': 443} %}
role: web server on {{ grains['kernel'] }}
services:
{% for name, port in ports.items() %}
  - name: {{ name }}
    port: {{ port }}
{% endfor %}
