// Package conf reads the configuration of a Salt master.
//
// The files, their order and the meaning of every option are Salt 3008's
// (salt/config/__init__.py): <dir>/master, then <dir>/master.d/*.conf as
// default_include says, then include; paths below root_dir; the id from the
// minion_id file or the host name. Options that Salt knows and this master
// does not use are checked for their type and kept. Where Salt warns of a
// value of the wrong type and goes on with it, Load fails, and names the
// file, the line, the option and what was expected, for all faults at once;
// unless going on does what was meant: file_recv: 1, or an option that is
// not used. Such a value is noted.
//
// options.txt is the one table of options: types, defaults, what is a secret, and
// what becomes of a value. Checks, notes, what [WithoutSecrets] hides and
// docs/options.md follow from it. testdata/salt.txt records what a release of Salt
// knows, and tests compare the two. An option that is used has a row and a field
// of [Master] or, when it is handed on as it was written, a place that reads it
// from Raw.
package conf
