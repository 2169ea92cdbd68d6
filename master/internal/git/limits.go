package git

import (
	"cmp"
	"time"
)

// Limits of a Store. A zero value means the default.
type Limits struct {
	Refs      int           // of one remote; 20,000
	Size      int64         // of one repository on disk, in bytes; 4 GiB
	Entries   int           // files and directories of one tree; 1,048,576
	Depth     int           // directories in directories; 100
	File      int64         // one file, in bytes; 1 GiB
	Blobs     int64         // files that were read, kept on disk, in bytes; 1 GiB
	BlobFiles int           // and their number; 200,000
	Checkout  int64         // bytes of a tree on disk; 512 MiB
	Checkouts int           // trees on disk; 64
	Work      int64         // bytes of all trees on disk; 2 GiB
	Trees     int64         // bytes of trees in memory; 32 MiB
	Fetch     time.Duration // one fetch; 30 minutes
	Stall     time.Duration // of which nothing arrives; 3 minutes
	List      time.Duration // the remote's list of refs; 1 minute
	Read      time.Duration // one object; 1 minute
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

// Bounds of single things.
const (
	maxObject  = 16 << 20 // a tree, commit or tag
	maxPath    = 4096     // bytes
	maxName    = 255      // bytes of one name in a tree
	maxLink    = 4096     // bytes of what a link points to
	maxRefName = 512
)
