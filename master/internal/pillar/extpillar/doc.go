// Package extpillar runs entries of the option ext_pillar without Python: cmd_yaml, cmd_json,
// file_tree and nodegroups, as salt/pillar/*.py of 3006.28, 3007.15 and 3008.3 do.
//
// What Go cannot be shown to do exactly is left to Salt's module: ErrInexact says so. Of a command that
// has run, only its output goes to Salt's module, which then reads it; a command never runs twice.
//
// A minion's id is put into a command as Salt does it, without quotes. Package keys refuses ids with
// path separators, line ends and globs, but not with $ ; & | and quotes: the administrator who accepts
// a key, or lets an autosign rule accept it, decides what a shell may see. Runners take such an id from a
// caller only if its key is accepted (keys.IsPlainID).
//
// Every command and every look at a directory has a deadline. What did not end in time is left alone
// for a while (package hangs), and its pillar gets no answer: the minion asks again.
package extpillar
