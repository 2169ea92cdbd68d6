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
// defaults.yaml and types.txt are written by testdata/dump.py from a Salt
// release; extra.txt adds what Salt reads without declaring, and our own
// options, which begin with saltern_.
package conf
