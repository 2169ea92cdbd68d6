// Package audit keeps the record of who did what from where. Each program writes what
// was done through it to files of its node, lines of JSON, before anybody else hears
// of it; a node answers for the others by asking them.
//
// A folder holds two kinds of files. acts are of who has proven who he is. strangers
// are of what anybody can cause who reaches a port, refused log-ins above all: they
// have a rate and room of their own, so that nobody who has proven nothing can drive
// out an act. Both are bounded in bytes and age; the oldest go.
//
// Several programs of one account may write to one folder at the same time (the
// master and salt-key). The folder must be on a disk of the machine itself: locks are
// taken (flock), which the shared volume must never see.
//
// Text from elsewhere is bounded and made safe when a record is written and again
// when it is read, for the account of the master owns its files and may be hostile.
// docs/decisions/0015-audit.md says what is promised.
package audit
