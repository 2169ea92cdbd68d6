// Package pillar compiles the pillars of minions.
//
// The rules are those of Salt's Pillar class (salt/pillar/__init__.py of
// 3008.3): top files, environments, matching, includes, merging, errors.
// They are Go here. An SLS of plain YAML is read by Go too; one that needs a
// template, and the ext_pillar chain, go to Salt's own renderers (package
// renderer). Without them a plain pillar still works, and a template gives
// an entry in _errors.
//
// A minion gets its own pillar only: its id comes from the proven identity
// of the request, replaces the grain of that name, and the sources that a
// minion may name itself (on-demand ext_pillar) are refused. Grains are
// chosen by the minion, so a top file that matches grains trusts minions.
//
// What is kept is the parsed form of plain files, by device, inode, size,
// mtime and ctime. Nothing that was rendered for one minion is kept, unless
// there is a memo (package memo, Config.Memo): then the results of templates,
// for minions for which everything that was read is the same.
package pillar
