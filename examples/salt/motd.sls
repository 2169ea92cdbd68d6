# A file made of pillar and grains, below the minion's own root folder so that
# trying it changes nothing on the machine.
{% set dir = salt['config.get']('root_dir') %}

greeting:
  file.managed:
    - name: {{ dir }}/motd
    - source: salt://motd.jinja
    - template: jinja
    - mode: '0644'
    - makedirs: True
    - context:
        services: {{ pillar['services'] | json }}

{% for service in pillar['services'] %}
{{ service.name }}-noted:
  test.succeed_without_changes:
    - name: {{ service.name }} listens on {{ service.port }}
    - require:
        - file: greeting
{% endfor %}
