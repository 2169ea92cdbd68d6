package git

import (
	"cmp"
	"time"
)

// Limits bounds the remotes of a Store. 0 means the default, which the comments give after the
// semicolon.
type Limits struct {
	Refs      int           // number of refs of one remote; 20,000
	Size      int64         // size of one repository on disk, in bytes; 4 GiB
	Entries   int           // files and directories of one tree; 1,048,576
	Depth     int           // levels of nested directories; 100
	File      int64         // size of one file, in bytes; 1 GiB
	Blobs     int64         // size of all files in the disk cache, in bytes; 1 GiB
	BlobFiles int           // number of files in the disk cache; 200,000
	Checkout  int64         // size of one tree on disk, in bytes; 512 MiB
	Checkouts int           // number of trees on disk; 64
	Work      int64         // size of all trees on disk, in bytes; 2 GiB
	Trees     int64         // size of the trees in memory, in bytes; 32 MiB
	Fetch     time.Duration // time of one fetch; 30 minutes
	Stall     time.Duration // time without a new byte during a fetch; 3 minutes
	List      time.Duration // time to list a remote's refs; 1 minute
	Read      time.Duration // time to read one object; 1 minute
}

func (l Limits) orDefaults() Limits {
	return Limits{
		Refs:      cmp.Or(l.Refs, 20000),
		Size:      cmp.Or(l.Size, 4<<30),
		Entries:   cmp.Or(l.Entries, 1<<20),
		Depth:     cmp.Or(l.Depth, 100),
		File:      cmp.Or(l.File, 1<<30),
		Blobs:     cmp.Or(l.Blobs, 1<<30),
		BlobFiles: cmp.Or(l.BlobFiles, 200000),
		Checkout:  cmp.Or(l.Checkout, 512<<20),
		Checkouts: cmp.Or(l.Checkouts, 64),
		Work:      cmp.Or(l.Work, 2<<30),
		Trees:     cmp.Or(l.Trees, 32<<20),
		Fetch:     cmp.Or(l.Fetch, 30*time.Minute),
		Stall:     cmp.Or(l.Stall, 3*time.Minute),
		List:      cmp.Or(l.List, time.Minute),
		Read:      cmp.Or(l.Read, time.Minute),
	}
}

// Bounds of single objects and names.
const (
	maxObject  = 16 << 20 // bytes of a tree, commit or tag
	maxPath    = 4096     // bytes of a path
	maxName    = 255      // bytes of one name in a tree
	maxLink    = 4096     // bytes of a link's target
	maxRefName = 512
)
