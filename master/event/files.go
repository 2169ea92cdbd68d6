package event

// TagOldFiles says that minions are served files of before: what is new on the shared
// volume could not be copied to the node that serves them. The data has minions (1,000 at
// most), id (the first of them), node, as_of (of when their files are; empty: not known) and
// why.
const TagOldFiles = "master/files/old"

// OldFilesOfRun is the last part of the tag of the same event about a runner, below
// salt/run/<jid>. It has no id.
const OldFilesOfRun = "old_files"
