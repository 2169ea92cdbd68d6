package status

import "time"

// clusterKinds returns the kinds of problems of the nodes of a cluster, of their shared storage and
// of their keys.
func clusterKinds() []Kind {
	return []Kind{
		{
			Code:     ConfigDiffers,
			Severity: Warning,
			Subject:  "/etc/saltern/appliance.yaml",
			Title:    "appliance.yaml names this node otherwise than the table of nodes, which counts",
			Next:     "correct %s as the cause says, then: sudo applianced config check; applianced reload",
		},

		{
			Code:     NodeRemoved,
			Severity: Fatal,
			Title:    "this node was removed from the cluster",
			Next:     "applianced reset says what it would erase, applianced reset --yes erases the keys and data of this node; then it may join again, as a new one",
		},

		{
			Code:      NodeMasterDown,
			Severity:  Warning,
			Subject:   "NODE",
			Title:     "the master of node %s does not serve",
			Next:      "applianced status on %s",
			DependsOn: []Code{NotTheNode, NodeUnreachable, NodeNotServing},
			Visible:   10 * time.Second,
		},

		{
			Code:     SecretStaged,
			Severity: Notice,
			Title:    "the cluster's secret is being changed, and not every node has the new one",
			Next:     "applianced secret rotate goes on with it",
			Visible:  2 * time.Minute,
		},

		{
			Code:     NodeUnreachable,
			Severity: Warning,
			Subject:  "NODE",
			Title:    "node %s is unreachable",
			Next: "applianced ping %s; if it is gone for good, and the other nodes say the same: " +
				"applianced remove %s (then it can join only as a new node)",
			Visible: 10 * time.Second,
		},

		{
			Code:      NodeNotServing,
			Severity:  Warning,
			Subject:   "NODE",
			Title:     "node %s does not serve minions",
			Next:      "applianced status on %s",
			DependsOn: []Code{NodeUnreachable},
			Visible:   10 * time.Second,
		},

		{
			Code:      NodeAPIDown,
			Severity:  Warning,
			Subject:   "ADDRESS",
			Title:     "other nodes cannot speak with this one: it does not listen on %s",
			Next:      "fix what the cause names; which program has a port says ss -ltnp. It is tried again by itself",
			DependsOn: []Code{NotTheNode},
			Visible:   3 * time.Second,
		},

		{
			Code:     MastersApart,
			Severity: Warning,
			Subject:  "NODE",
			Title:    "the masters of this node and of %s do not reach each other",
			Next: "let the port that the cause names through between the two nodes, both ways; " +
				"applianced ping %s tries it",
			Visible: 10 * time.Second,
		},

		{
			Code:     ArbiterUnwell,
			Severity: Warning,
			Subject:  "NODE",
			Title:    "the arbiter %s does not decide between the copies",
			Next: "applianced status and applianced storage status on %s; " +
				"until then the loss of a copy may stop the volume",
			DependsOn: []Code{
				NodeRemoved, SetupStopped, NodeUnreachable, VolumeAbsent, VolumeHangs,
				VolumeStopped, VolumeNoQuorum, StorageDaemon, StorageRejected,
			},
			Visible: 10 * time.Second,
		},

		{
			Code:     RemovalHalf,
			Severity: Warning,
			Subject:  "NODE",
			Title:    "the removal of node %s has stopped half way",
			Next: "the nodes finish it by themselves, as soon as the shared storage takes writes and a master answers; " +
				"if it stays, the cause says why; all of it: journalctl -u applianced",
			Visible: 3 * time.Second,
		},

		{
			Code:     KeyTwice,
			Severity: Warning,
			Subject:  "NODE",
			Title:    "another machine uses the key of node %s",
			Next: "find that machine, often a copy that was made for a test or as a backup, " +
				"and run applianced reset --yes on it: that erases its keys and data, it becomes a new machine, and %s goes on. " +
				"The copy itself says SCA-115. If it is %s itself, which has got another address and says SCA-604, " +
				"give it its own back. Which one is to stay after a restore: " +
				"docs/backup.md, Clones and restored machines",
			DependsOn: []Code{NotTheNode},
			Visible:   5 * time.Second,
		},

		{
			Code:     NotTheNode,
			Severity: Fatal,
			Subject:  "NODE",
			Title:    "this machine has the key of node %s and is not in its place",
			Next: "if this is a copy of %s: applianced reset --yes erases its keys and data, makes it a new machine, " +
				"and changes nothing in the cluster. " +
				"If it is %s itself, restored or moved: give it the address of %s, and switch the other machine off",
			DependsOn: []Code{NodeRemoved},
			Visible:   5 * time.Second,
		},

		{
			Code:     ClockSkew,
			Severity: Warning,
			Subject:  "NODE",
			Title:    "the clocks of this node and of %s differ",
			Next:     "applianced ping %s; check the time service on both: timedatectl",
			Visible:  20 * time.Second,
		},

		{
			Code:     SecretWeak,
			Severity: Warning,
			Title:    "the cluster's secret is easy to guess",
			Next:     "applianced secret rotate gives the cluster another one; nothing stops meanwhile",
		},
	}
}

// balancerKinds returns the kinds of problems of the load balancer and the virtual address.
func balancerKinds() []Kind {
	return []Kind{
		{
			Code:     VirtualTwice,
			Severity: Warning,
			Subject:  "ADDRESS",
			Title:    "more than one node has the virtual address %s",
			Next:     "let VRRP (IP protocol 112) through between the nodes; applianced ping NODE looks at the rest",
			Visible:  15 * time.Second,
		},

		{
			Code:     VirtualNobody,
			Severity: Warning,
			Subject:  "ADDRESS",
			Title:    "no node has the virtual address %s",
			Next:     "applianced status on each node says why it does not take it",
			DependsOn: []Code{
				NodeRemoved, SetupStopped, MasterDown, MasterSilent, BalancerDown, NoBackend,
				VirtualUnable,
			},
			Visible: 15 * time.Second,
		},

		{
			Code:      BalancerDown,
			Severity:  Fatal,
			Title:     "the load balancer is not running",
			Next:      "applianced logs lb",
			DependsOn: []Code{NodeRemoved, SetupStopped, PortInUse, ProgramMissing, AccountMissing},
		},

		{
			Code:     NoBackend,
			Severity: Fatal,
			Title:    "the load balancer has no master to send minions to",
			Next:     "applianced lb status",
			DependsOn: []Code{
				NodeRemoved, SetupStopped, MasterDown, MasterSilent, ReturnsNotKept, BalancerDown,
				BalancerSilent, MasterConfig, KeyUnreadable, PortInUse, StorageUnusable, DiskFull,
				ProgramMissing, AccountMissing,
			},
			Visible: 3 * time.Second,
		},

		{
			Code:      BalancerSilent,
			Severity:  Warning,
			Title:     "the load balancer does not answer on its admin socket",
			Next:      "applianced logs lb; applianced restart lb",
			DependsOn: []Code{NodeRemoved, SetupStopped, BalancerDown, PortInUse, ProgramMissing, AccountMissing},
			Visible:   3 * time.Second,
		},

		{
			Code:     VirtualUnable,
			Severity: Warning,
			Subject:  "ADDRESS",
			Title:    "this node cannot take the virtual address %s",
			Next: "fix the cause; it is tried again by itself. " +
				"Another address: applianced virtual-address ADDRESS",
			DependsOn: []Code{NodeRemoved, SetupStopped},
			Visible:   5 * time.Second,
		},

		{
			Code:     SourceLimited,
			Severity: Warning,
			Title:    "the load balancer refuses connections of a source",
			Next: "applianced lb status lists the sources; " +
				"if it is no site of yours: block it in front of the node",
			DependsOn: []Code{NodeRemoved, SetupStopped},
		},
	}
}
