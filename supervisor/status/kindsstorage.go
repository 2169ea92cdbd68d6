package status

import "time"

// storageKinds returns the kinds of problems of the shared storage, the disks and the volume.
func storageKinds() []Kind {
	return []Kind{
		{
			Code:     StorageUnusable,
			Severity: Fatal,
			Subject:  "FOLDER",
			Title:    "storage %s cannot be used",
			Next: "look at the disk below it: findmnt -T %s, journalctl -k. " +
				"When it works, mount it again (a restart of the machine does); it is used again by itself",
		},

		{
			Code:     DiskFull,
			Severity: Fatal,
			Subject:  "FOLDER",
			Title:    "the file system of %s is full",
			Next:     "make room there, or enlarge the disk or the quota that the cause names",
		},

		{
			Code:      DiskLow,
			Severity:  Warning,
			Subject:   "FOLDER",
			Title:     "the file system of %s is nearly full",
			Next:      "make room or enlarge the disk",
			DependsOn: []Code{DiskFull},
		},

		{
			Code:     VolumeAbsent,
			Severity: Warning,
			Title:    "the shared volume is not mounted",
			Next: "it is mounted again by itself; if it stays: " +
				"applianced storage status, and the client's log in /var/log/glusterfs",
			DependsOn: []Code{VolumeStopped, VolumeNoQuorum, StorageRejected, StorageUnusable},
			Visible:   3 * time.Second,
		},

		{
			Code:      VolumeHangs,
			Severity:  Warning,
			Title:     "the shared volume does not answer",
			Next:      "check that the other nodes and their bricks run: applianced storage status",
			DependsOn: []Code{VolumeStopped, VolumeNoQuorum, StorageRejected},
		},

		{
			Code:     VolumeStopped,
			Severity: Warning,
			Subject:  "VOLUME",
			Title:    "the shared volume does not run",
			Next:     "applianced storage plan shows what is missing; by hand: gluster volume start %s",
			Visible:  3 * time.Second,
		},

		{
			Code:     VolumeNoQuorum,
			Severity: Warning,
			Title:    "too many copies of the shared volume are away",
			Next: "bring a node back; the rest follows by itself; " +
				"if most are lost for good: applianced recover --new-cluster",
			Visible: 3 * time.Second,
		},

		{
			Code:      StorageDaemon,
			Severity:  Warning,
			Title:     "glusterd on this node does not answer",
			Next:      "systemctl status glusterd; look at /var/log/glusterfs/glusterd.log",
			DependsOn: []Code{CopyUndecided, StorageUnusable},
			Visible:   10 * time.Second,
		},

		{
			Code:     VolumeFull,
			Severity: Warning,
			Title:    "the shared volume is full",
			Next:     "delete what is not needed, or give the nodes larger disks",
		},

		{
			Code:      VolumeLow,
			Severity:  Warning,
			Title:     "the shared volume is nearly full",
			Next:      "delete what is not needed, or give the nodes larger disks",
			DependsOn: []Code{VolumeFull},
		},

		{
			Code:     BrickFull,
			Severity: Warning,
			Subject:  "COPY",
			Title:    "the disk of copy %s is full",
			Next:     "make the disk of that node larger, or delete what is not needed",
		},

		{
			Code:      BrickDown,
			Severity:  Warning,
			Subject:   "COPY",
			Title:     "the copy %s does not run",
			Next:      "it is started again by itself; if its disk is lost: applianced storage plan",
			DependsOn: []Code{VolumeStopped, VolumeNoQuorum, StorageUnusable},
			Visible:   5 * time.Second,
		},

		{
			Code:     SplitBrain,
			Severity: Warning,
			Title:    "copies disagree, and only you can say which is right",
			Next:     "applianced storage status lists the files and the commands that settle them",
		},

		{
			Code:     HealPending,
			Severity: Notice,
			Title:    "copies of the shared volume are being made equal",
			Next:     "wait; do not stop another node before it has ended",
			Visible:  15 * time.Second,
		},

		{
			Code:      HealStuck,
			Severity:  Warning,
			Title:     "copies of the shared volume do not become equal",
			Next:      "applianced storage status lists the files",
			DependsOn: []Code{BrickDown},
		},

		{
			Code:      StorageBlocked,
			Severity:  Warning,
			Title:     "a change of the storage cannot be made",
			Next:      "applianced storage plan",
			DependsOn: []Code{StorageUnusable},
			Visible:   20 * time.Second,
		},

		{
			Code:     StorageOpen,
			Severity: Warning,
			Title:    "the shared volume is open to other machines",
			Next:     "applianced storage plan",
			Visible:  30 * time.Second,
		},

		{
			Code:     StorageRejected,
			Severity: Warning,
			Subject:  "NODE",
			Title:    "the storage pool rejects node %s",
			Next:     "if it was removed on purpose: let it join again as a new node",
			Visible:  10 * time.Second,
		},

		{
			Code:      StoragePeerAway,
			Severity:  Warning,
			Subject:   "NODE",
			Title:     "the storage of node %s is away",
			Next:      "bring it back, or remove it: applianced remove %s",
			DependsOn: []Code{NodeUnreachable},
			Visible:   10 * time.Second,
		},

		{
			Code:      MirrorBehind,
			Severity:  Warning,
			Title:     "this node serves files for minions that may be old",
			Next:      "it recovers by itself when the shared volume answers again, or when all that is new is copied",
			DependsOn: []Code{VolumeAbsent, VolumeHangs, VolumeStopped, VolumeNoQuorum, StorageUnusable},
			Visible:   10 * time.Second,
		},

		{
			Code:     CopyOld,
			Severity: Warning,
			Title:    "this node's disk is older than its cluster remembers: it was put back to a snapshot or a backup",
			Next: "nothing, if other nodes have copies: wait until its own is filled again; " +
				"otherwise look through keys, files and options (docs/backup.md, Snapshots)",
		},

		{
			Code:     CopyUndecided,
			Severity: Warning,
			Title:    "the copy of the shared volume on this node may be older than those of other nodes",
			Next: "start the other nodes; if several were put back: " +
				"docs/backup.md, Snapshots, says how one copy is chosen",
		},

		{
			Code:     CopyKept,
			Severity: Notice,
			Subject:  "FOLDER",
			Title:    "an old copy of the shared volume is kept on this node",
			Next:     "take from it what you need, then: rm -r %s",
		},

		{
			Code:     DiskOld,
			Severity: Notice,
			Title:    "this node's disk is older than its cluster remembers: it was put back to a snapshot or a backup",
			Next:     "nothing; what this node alone wrote down since, such as its audit record, is lost",
		},
	}
}
