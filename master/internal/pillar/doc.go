// Package pillar compiles the pillars of minions.
//
// The rules are those of Salt's Pillar class (salt/pillar/__init__.py of 3008.3): top files,
// environments, matching, includes, merging, errors. They are implemented in Go, which also reads SLS
// of plain YAML. SLS with templates, and the ext_pillar chain, go to Salt's own renderers (package
// renderer). Without renderers a plain pillar still works, and each template becomes an entry in
// _errors.
//
// A minion gets only its own pillar: its id is the proven identity of the request and replaces the
// grain of that name. Sources that a minion could choose itself (on-demand ext_pillar) are refused.
// But a minion chooses its grains, so a top file that matches grains trusts the minions.
//
// The parsed form of plain files is cached, by device, inode, size, mtime and ctime. Results that
// were rendered for one minion are not cached, except in a memo (package memo, Config.Memo), which
// holds results of templates for minions with the same inputs.
package pillar
