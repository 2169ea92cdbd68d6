package git

import (
	"cmp"
	"time"
)

// Limits bounds the remotes of a Store. A zero value means the default, which follows the unit.
type Limits struct {
	Refs      int           // refs of one remote; 20,000
	Size      int64         // of one repository on disk, in bytes; 4 GiB
	Entries   int           // files and directories of one tree; 1,048,576
	Depth     int           // nested directories; 100
	File      int64         // bytes of one file; 1 GiB
	Blobs     int64         // bytes of all files kept on disk after reading; 1 GiB
	BlobFiles int           // number of those files; 200,000
	Checkout  int64         // bytes of a tree on disk; 512 MiB
	Checkouts int           // trees on disk; 64
	Work      int64         // bytes of all trees on disk; 2 GiB
	Trees     int64         // bytes of trees in memory; 32 MiB
	Fetch     time.Duration // time of one fetch; 30 minutes
	Stall     time.Duration // time without a new byte in a fetch; 3 minutes
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
