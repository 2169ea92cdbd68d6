{% if data['id'] != grains['id'] %}
delete_minion:
  wheel.key.delete:
    - match: {{ data['id'] }}
remove_caches:
  runner.cache.clear_all:
    - tgt: {{ data['id'] }}
    - tgt_type: glob
{% endif %}
