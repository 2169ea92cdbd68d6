update_fileserver:
  runner.fileserver.update
update_pillars:
  runner.git_pillar.update: []
