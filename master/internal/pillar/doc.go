// Package pillar compiles the pillars of minions.
//
// The rules are those of Salt's Pillar class (salt/pillar/__init__.py of 3008.3): top files,
// environments, matching, includes, merging, errors. Go implements them, and also reads SLS that
// are plain YAML. SLS with templates, and the entries of the ext_pillar chain that packages gitpillar
// and extpillar do not know, are rendered by Salt's own renderers (package renderer). Without renderers a pillar of plain YAML still works, and each
// template becomes an entry in _errors.
//
// A minion gets only its own pillar: the compiler uses the authenticated id of the request and
// replaces the grain id by it. It refuses sources that a minion could choose itself (on-demand
// ext_pillar). A minion does choose its own grains, so a top file that matches grains trusts the
// minions.
//
// The parsed form of plain files is cached. The key of the cache is device, inode, size, mtime and
// ctime. Results that were rendered for one minion are not cached, except in a memo (package memo,
// Config.Memo), which stores results of templates for other minions with the same inputs. Values of
// YAML are also cached by the text that was rendered (package renderer). All of these values are
// shared: the compiler copies what it changes.
package pillar
