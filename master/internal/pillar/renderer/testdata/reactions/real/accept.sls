{# A new minion of our own network is accepted. #}
{% if 'act' in data and data['act'] == 'pend' and data['id'].startswith('ink') %}
minion_add:
  wheel.key.accept:
    - args:
      - match: {{ data['id'] }}
{% endif %}
minion_old:
  wheel.key.accept:
    - match: {{ data['id'] }}
