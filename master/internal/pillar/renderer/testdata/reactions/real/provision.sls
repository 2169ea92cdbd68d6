{% set vm = data.get('data', data) %}
create_{{ vm['id'] }}:
  runner.own.create:
    - id: {{ vm['id'] }}
    - class: small
    - name: {{ vm['id'] }}-vm
    - kwargs: {size: 5}
