// Package pillar compiles the pillars of minions.
//
// The rules are those of Salt's Pillar class (salt/pillar/__init__.py of 3008.3): top files,
// environments, matching, includes, merging, errors. They are implemented in Go. SLS of plain YAML
// are read in Go too; SLS with templates, and the ext_pillar chain, go to Salt's own renderers
// (package renderer). Without those a plain pillar still works, and a template becomes an entry in
// _errors.
//
// A minion gets only its own pillar: its id comes from the proven identity of the request and
// replaces the grain of that name, and the sources that a minion could name itself (on-demand
// ext_pillar) are refused. A minion chooses its grains, so a top file that matches grains trusts
// minions.
//
// The parsed form of plain files is cached, by device, inode, size, mtime and ctime. Nothing that
// was rendered for one minion is cached, unless there is a memo (package memo, Config.Memo): it
// holds the results of templates, for minions with the same inputs.
package pillar
