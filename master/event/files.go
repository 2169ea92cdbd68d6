package event

// TagOldFiles reports that minions get outdated files: new files on the shared volume could not be
// copied to the node that serves them. The data has minions (1,000 at most), id (the first of
// them), node, as_of (the time of the served files, empty if unknown) and why.
const TagOldFiles = "master/files/old"

// OldFilesOfRun is the last part of the tag of the same event about a runner, below salt/run/<jid>.
// That event has no id.
const OldFilesOfRun = "old_files"
