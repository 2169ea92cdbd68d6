// Package conf reads the configuration of a Salt master.
//
// The files, their order and the meaning of every option are Salt 3008's (salt/config/__init__.py):
// <dir>/master, then <dir>/master.d/*.conf as default_include says, then include; paths below
// root_dir; the id from the minion_id file or the host name. Load also checks the types of options
// that Salt knows and this master does not use, and keeps their values. If a value has the wrong
// type, Salt warns and continues. Load fails instead. Its error names the file, the line, the
// option and the expected type, for all faults at once. Load only adds a note where the intention
// is clear, as in file_recv: 1, or where the master does not use the option.
//
// options.txt is the one table of options: types, defaults, which are secret, and how the
// master uses each. The checks, the notes, the values that [WithoutSecrets] hides and
// docs/options.md are derived from this table. testdata/salt.txt records the options of a release
// of Salt, and tests compare the two. For each option that this master uses, there is a row and a
// field of [Master], or code that reads the option from Raw.
package conf
