package status

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Severity says what a problem means for service.
type Severity string

// The severities.
const (
	Fatal   Severity = "fatal"   // minions cannot be served: health becomes "not serving"
	Warning Severity = "warning" // needs a person: health becomes "degraded"
	Notice  Severity = "notice"  // worth knowing: health stays
)

// Code identifies a kind of problem for ever. The hundreds say where: 0
// configuration, 1 other nodes, 2 master, 3 load balancer, 4 storage, 5
// security, 6 system.
type Code string

// The codes.
const (
	NotConfigured     Code = "SCA-001"
	ConfigWrong       Code = "SCA-002"
	SetupStopped      Code = "SCA-003"
	ResetStopped      Code = "SCA-004"
	SupervisorSilent  Code = "SCA-005"
	ConfigDiffers     Code = "SCA-006"
	NodeRemoved       Code = "SCA-101"
	NodeMasterDown    Code = "SCA-102"
	SecretStaged      Code = "SCA-103"
	NodeUnreachable   Code = "SCA-104"
	NodeNotServing    Code = "SCA-105"
	NodeAPIDown       Code = "SCA-106"
	VirtualNobody     Code = "SCA-107"
	VirtualTwice      Code = "SCA-108"
	MastersApart      Code = "SCA-109"
	ArbiterUnwell     Code = "SCA-110"
	RemovalHalf       Code = "SCA-111"
	KeyTwice          Code = "SCA-114"
	NotTheNode        Code = "SCA-115"
	MasterDown        Code = "SCA-201"
	MasterConfig      Code = "SCA-202"
	MasterSilent      Code = "SCA-203"
	KeyUnreadable     Code = "SCA-204"
	PortInUse         Code = "SCA-205"
	PillarErrors      Code = "SCA-206"
	ProgramMissing    Code = "SCA-207"
	ReturnsNotKept    Code = "SCA-208"
	MasterProblem     Code = "SCA-209"
	MasterUnreported  Code = "SCA-210"
	GitPillars        Code = "SCA-211"
	MasterLastGood    Code = "SCA-212"
	GitFiles          Code = "SCA-213"
	GitAway           Code = "SCA-214"
	GitLogin          Code = "SCA-215"
	GitHostKey        Code = "SCA-216"
	GitRefGone        Code = "SCA-217"
	GitSize           Code = "SCA-218"
	PythonPackages    Code = "SCA-219"
	APIDown           Code = "SCA-220"
	AuditLost         Code = "SCA-221"
	PillarsUnanswered Code = "SCA-232"
	ReactionsLost     Code = "SCA-233"
	APIFront          Code = "SCA-230"
	BackupLate        Code = "SCA-223"
	SystemOld         Code = "SCA-224"
	SystemFixed       Code = "SCA-225"
	SystemNewer       Code = "SCA-226"
	SystemUnasked     Code = "SCA-227"
	SystemFrozen      Code = "SCA-228"
	UpgradeStopped    Code = "SCA-240"
	UpgradeUnmade     Code = "SCA-241"
	UpgradeUnfinished Code = "SCA-242"
	UpgradeGaveUp     Code = "SCA-243"
	BalancerDown      Code = "SCA-301"
	NoBackend         Code = "SCA-302"
	BalancerSilent    Code = "SCA-303"
	VirtualUnable     Code = "SCA-304"
	SourceLimited     Code = "SCA-305"
	StorageUnusable   Code = "SCA-401"
	DiskFull          Code = "SCA-402"
	DiskLow           Code = "SCA-403"
	VolumeAbsent      Code = "SCA-411"
	VolumeHangs       Code = "SCA-412"
	VolumeStopped     Code = "SCA-413"
	VolumeNoQuorum    Code = "SCA-414"
	StorageDaemon     Code = "SCA-415"
	VolumeFull        Code = "SCA-416"
	VolumeLow         Code = "SCA-417"
	BrickFull         Code = "SCA-418"
	BrickDown         Code = "SCA-419"
	SplitBrain        Code = "SCA-420"
	HealPending       Code = "SCA-421"
	HealStuck         Code = "SCA-422"
	StorageBlocked    Code = "SCA-423"
	StorageOpen       Code = "SCA-424"
	StorageRejected   Code = "SCA-425"
	StoragePeerAway   Code = "SCA-426"
	ClockSkew         Code = "SCA-427"
	MirrorBehind      Code = "SCA-428"
	CopyOld           Code = "SCA-429"
	CopyUndecided     Code = "SCA-430"
	CopyKept          Code = "SCA-431"
	DiskOld           Code = "SCA-432"
	InsecureOption    Code = "SCA-501"
	ChildrenAsRoot    Code = "SCA-502"
	SecretWeak        Code = "SCA-503"
	AccountMissing    Code = "SCA-504"
	MemoryUnbounded   Code = "SCA-505"
	NobodyCanLogIn    Code = "SCA-506"
	FirewallWrong     Code = "SCA-507"
	FirewallOwn       Code = "SCA-508"
	ProfileOff        Code = "SCA-509"
	SSHConfig         Code = "SCA-510"
	GuardsUnseen      Code = "SCA-511"
	ClockUnsynced     Code = "SCA-601"
	DescriptorsShort  Code = "SCA-602"
	SupervisorStopped Code = "SCA-603"
	AddressMissing    Code = "SCA-604"
	PortRefused       Code = "SCA-605"
	NetworkDown       Code = "SCA-606"
	TimeAway          Code = "SCA-607"
	JournalConfig     Code = "SCA-608"
)

// Kind is what is fixed about a code: the table of kinds is the manual.
type Kind struct {
	Code     Code
	Severity Severity
	Title    string // a short sentence; one %s takes the subject
	Next     string // what to do; one %s takes the subject, if present
	// while one of these is shown, this one is hidden: it is a consequence; what is said of a node hides
	// only what is said of the same
	DependsOn []Code
	Visible   time.Duration // must have held this long before it is shown, against flapping
}

// masterKinds are about the master itself.
func masterKinds() []Kind {
	return []Kind{
		{MasterDown, Fatal, "salt-master is not running", "applianced logs master",
			[]Code{NodeRemoved, SetupStopped, MasterConfig, KeyUnreadable, PortInUse, StorageUnusable,
				DiskFull, ProgramMissing, AccountMissing, VolumeAbsent, VolumeStopped, VolumeNoQuorum}, 0},
		{MasterConfig, Fatal, "salt-master's configuration is wrong",
			"fix the file named; the master starts by itself then", nil, 0},
		{MasterSilent, Fatal, "salt-master does not answer", "applianced logs master; applianced restart master",
			[]Code{MasterDown, MasterConfig, KeyUnreadable, PortInUse, StorageUnusable, DiskFull,
				ProgramMissing, AccountMissing}, 0},
		{KeyUnreadable, Fatal, "key file %s cannot be used",
			"give it back its owner and mode, or restore it from a backup", nil, 0},
		{PortInUse, Fatal, "address %s is in use by another program",
			"stop that program, or choose another port in appliance.yaml", []Code{NotTheNode}, 0},
		{PillarErrors, Warning, "pillars do not render",
			"applianced logs master; salt-run pillar.show_pillar MINION", []Code{StorageUnusable}, 0},
		{PillarsUnanswered, Warning, "salt-master cannot make pillars now",
			"nothing, if it ends: minions keep the pillar they have and ask again; else look at what the cause names, and at applianced logs master",
			[]Code{MasterDown, StorageUnusable}, 0},
		{ReactionsLost, Warning, "events did not react",
			"look at what the runners of reactions wait for (applianced logs master); reactor_worker_threads has more of them at work",
			[]Code{MasterDown}, 0},
		{ProgramMissing, Fatal, "program %s is missing", "install it again, or set programs in appliance.yaml", nil, 0},
		{ReturnsNotKept, Fatal, "salt-master cannot keep jobs and returns",
			"fix what the cause names; it serves again by itself. Meanwhile other masters serve its minions, and minions send their returns again for a while",
			[]Code{MasterDown, DiskFull, StorageUnusable}, 0},
		{MasterProblem, Warning, "salt-master has trouble: %s", "applianced logs master",
			[]Code{MasterDown, DiskFull, StorageUnusable}, 5 * time.Second},
		{MasterUnreported, Warning, "salt-master does not report how it is",
			"applianced logs master; look at its cache directory",
			[]Code{MasterDown, MasterSilent, DiskFull, StorageUnusable}, 5 * time.Second},
		{MasterLastGood, Warning, "salt-master runs with its last good options",
			"fix what the cause names; then: applianced config apply", []Code{MasterDown}, 0},
		{PythonPackages, Warning, "Python packages cannot be used on this node",
			"fix what the cause names: applianced python add brings another version, applianced python remove takes one out; it is tried again by itself",
			[]Code{DiskFull, StorageUnusable}, 15 * time.Second},
		{AuditLost, Warning, "what is done on this node is not in its audit record",
			"fix what the cause names, most often by making room; it is tried again by itself, and the record says how much is missing",
			[]Code{DiskFull, StorageUnusable}, 15 * time.Second},
	}
}

// storageKinds are about the shared storage, disks and the volume.
func storageKinds() []Kind {
	return []Kind{
		{StorageUnusable, Fatal, "storage %s cannot be used",
			"look at the disk below it: findmnt -T %s, journalctl -k. When it works, mount it anew (a restart of the machine does); it is used again by itself",
			nil, 0},
		{DiskFull, Fatal, "the file system of %s is full",
			"make room there, or enlarge the disk or the quota that the cause names", nil, 0},
		{DiskLow, Warning, "the file system of %s is nearly full", "make room or enlarge the disk",
			[]Code{DiskFull}, 0},
		{VolumeAbsent, Warning, "the shared volume is not mounted",
			"it is mounted again by itself; if it stays: applianced storage status, and the client's log in /var/log/glusterfs",
			[]Code{VolumeStopped, VolumeNoQuorum, StorageRejected, StorageUnusable}, 3 * time.Second},
		{VolumeHangs, Warning, "the shared volume does not answer",
			"check that the other nodes and their bricks run: applianced storage status",
			[]Code{VolumeStopped, VolumeNoQuorum, StorageRejected}, 0},
		{VolumeStopped, Warning, "the shared volume does not run",
			"applianced storage plan shows what is missing; by hand: gluster volume start %s", nil,
			3 * time.Second},
		{VolumeNoQuorum, Warning, "too many copies of the shared volume are away",
			"bring a node back; the rest follows by itself; if most are lost for good: applianced recover --new-cluster",
			nil, 3 * time.Second},
		{StorageDaemon, Warning, "glusterd on this node does not answer",
			"systemctl status glusterd; look at /var/log/glusterfs/glusterd.log",
			[]Code{CopyUndecided, StorageUnusable}, 10 * time.Second},
		{VolumeFull, Warning, "the shared volume is full",
			"delete what is not needed, or give the nodes larger disks", nil, 0},
		{VolumeLow, Warning, "the shared volume is nearly full",
			"delete what is not needed, or give the nodes larger disks", []Code{VolumeFull}, 0},
		{BrickFull, Warning, "the disk of copy %s is full",
			"make the disk of that node larger, or delete what is not needed", nil, 0},
		{BrickDown, Warning, "the copy %s does not run",
			"it is started again by itself; if its disk is lost: applianced storage plan",
			[]Code{VolumeStopped, VolumeNoQuorum, StorageUnusable}, 5 * time.Second},
		{SplitBrain, Warning, "copies disagree, and only you can say which is right",
			"applianced storage status lists the files and the commands that settle them", nil, 0},
		{HealPending, Notice, "copies of the shared volume are being made equal",
			"wait; do not stop another node before it has ended", nil, 15 * time.Second},
		{HealStuck, Warning, "copies of the shared volume do not become equal",
			"applianced storage status lists the files", []Code{BrickDown}, 0},
		{StorageBlocked, Warning, "a change of the storage cannot be made", "applianced storage plan",
			[]Code{StorageUnusable}, 20 * time.Second},
		{StorageOpen, Warning, "the shared volume is open to other machines", "applianced storage plan", nil,
			30 * time.Second},
		{StorageRejected, Warning, "the storage pool rejects node %s",
			"if it was removed on purpose: let it join again as a new node", nil, 10 * time.Second},
		{StoragePeerAway, Warning, "the storage of node %s is away",
			"bring it back, or remove it: applianced remove %s", []Code{NodeUnreachable},
			10 * time.Second},
		{MirrorBehind, Warning, "this node serves files for minions that may be old",
			"it recovers by itself when the shared volume answers again",
			[]Code{VolumeAbsent, VolumeHangs, VolumeStopped, VolumeNoQuorum, StorageUnusable},
			10 * time.Second},
		{CopyOld, Warning,
			"this node's disk is older than its cluster remembers: it was put back to a snapshot or a backup",
			"nothing, if other nodes have copies: wait until its own is filled again; otherwise look through keys, files and options (docs/backup.md, Snapshots)",
			nil, 0},
		{CopyUndecided, Warning,
			"the copy of the shared volume on this node may be older than those of other nodes",
			"start the other nodes; if several were put back: docs/backup.md, Snapshots, says how one copy is chosen",
			nil, 0},
		{CopyKept, Notice, "an old copy of the shared volume is kept on this node",
			"take from it what you need, then: rm -r %s", nil, 0},
		{DiskOld, Notice,
			"this node's disk is older than its cluster remembers: it was put back to a snapshot or a backup",
			"nothing; what this node alone wrote down since, such as its audit record, is lost", nil, 0},
	}
}

// apiKinds are about Salt's API.
func apiKinds() []Kind {
	return []Kind{
		{APIDown, Warning, "Salt's API is not served by this node",
			"fix what the cause names, it is tried again by itself; then applianced logs api; applianced restart api",
			[]Code{NodeRemoved, SetupStopped, MasterDown, MasterConfig, DiskFull, StorageUnusable, AccountMissing},
			5 * time.Second},
		{APIFront, Warning, "the load balancer of this node cannot reach its salt-api",
			"fix what the cause names: ss -ltnp says which program has a port; front.api_port and rest_cherrypy may name the same one; 0 in front.api_port leaves the API to salt-api alone",
			[]Code{NodeRemoved, SetupStopped, APIDown, MasterDown, MasterSilent, ReturnsNotKept,
				MasterConfig, BalancerDown, BalancerSilent, DiskFull, StorageUnusable, AccountMissing}, 30 * time.Second},
	}
}

// Kinds gives the table, ordered by code.
func Kinds() []Kind {
	all := append(slices.Concat(masterKinds(), gitKinds(), storageKinds(), upkeepKinds(), apiKinds(), guardKinds()),
		[]Kind{
			{NotConfigured, Fatal, "this node has not been set up",
				"applianced setup asks, or shows how it goes; or write %s", nil, 0},
			{ConfigWrong, Fatal, "the configuration is wrong", "fix %s, then: sudo applianced config check", nil, 0},
			{SetupStopped, Fatal, "the set-up of this node has stopped",
				"fix the cause, then: applianced setup retry; applianced setup shows all of it", nil, 0},
			{ResetStopped, Fatal, "the reset of this node has stopped; it serves no more",
				"correct the cause, then: applianced reset --yes", nil, 0},
			{SupervisorSilent, Fatal, "the supervisor of this node does not answer",
				"systemctl status applianced; or start it: applianced run", nil, 0},
			{ConfigDiffers, Warning,
				"appliance.yaml names this node otherwise than the table of nodes, which counts",
				"correct %s as the cause says, then: sudo applianced config check; applianced reload", nil,
				0},
			{NodeRemoved, Fatal, "this node was removed from the cluster",
				"applianced reset makes it a new machine; then it may join again", nil, 0},
			{NodeMasterDown, Warning, "the master of node %s does not serve", "applianced status on %s",
				[]Code{NotTheNode, NodeUnreachable, NodeNotServing}, 10 * time.Second},
			{SecretStaged, Notice,
				"the cluster's secret is being changed, and not every node has the new one",
				"applianced secret rotate goes on with it", nil, 2 * time.Minute},
			{NodeUnreachable, Warning, "node %s is unreachable",
				"applianced ping %s; if it is gone for good, and the other nodes say the same: applianced remove %s",
				nil, 10 * time.Second},
			{NodeNotServing, Warning, "node %s does not serve minions", "applianced status on %s",
				[]Code{NodeUnreachable}, 10 * time.Second},
			{NodeAPIDown, Warning, "other nodes cannot speak with this one: it does not listen on %s",
				"fix what the cause names; which program has a port says ss -ltnp. It is tried again by itself",
				[]Code{NotTheNode}, 3 * time.Second},
			{VirtualNobody, Warning, "no node has the virtual address %s",
				"applianced status on each node says why it does not take it",
				[]Code{NodeRemoved, SetupStopped, MasterDown, MasterSilent, BalancerDown, NoBackend,
					VirtualUnable}, 15 * time.Second},
			{VirtualTwice, Warning, "more than one node has the virtual address %s",
				"let VRRP (IP protocol 112) through between the nodes; applianced ping NODE looks at the rest",
				nil, 15 * time.Second},
			{MastersApart, Warning, "the masters of this node and of %s do not reach each other",
				"let the port that the cause names through between the two nodes, both ways; applianced ping %s tries it",
				nil, 10 * time.Second},
			{ArbiterUnwell, Warning, "the arbiter %s does not decide between the copies",
				"applianced status and applianced storage status on %s; until then the loss of a copy may stop the volume",
				[]Code{NodeRemoved, SetupStopped, NodeUnreachable, VolumeAbsent, VolumeHangs, VolumeStopped,
					VolumeNoQuorum, StorageDaemon, StorageRejected}, 10 * time.Second},
			{RemovalHalf, Warning, "the removal of node %s has stopped half way",
				"the nodes finish it by themselves, as soon as the shared storage takes writes and a master answers; if it stays, the cause says why; all of it: journalctl -u applianced",
				nil, 3 * time.Second},
			{KeyTwice, Warning, "another machine uses the key of node %s",
				"find that machine, often a copy that was made for a test or as a backup, and run applianced reset --yes on it: it becomes a new machine, and %s goes on. The copy itself says SCA-115. If it is %s itself, which has got another address and says SCA-604, give it its own back. Which one is to stay after a restore: docs/backup.md, Clones and restored machines",
				[]Code{NotTheNode}, 5 * time.Second},
			{NotTheNode, Fatal, "this machine has the key of node %s and is not in its place",
				"if this is a copy of %s: applianced reset --yes makes it a new machine, and changes nothing in the cluster. If it is %s itself, restored or moved: give it the address of %s, and switch the other machine off",
				[]Code{NodeRemoved}, 5 * time.Second},
			{BalancerDown, Fatal, "the load balancer is not running", "applianced logs lb",
				[]Code{NodeRemoved, SetupStopped, PortInUse, ProgramMissing, AccountMissing}, 0},
			{NoBackend, Fatal, "the load balancer has no master to send minions to", "applianced lb status",
				[]Code{NodeRemoved, SetupStopped, MasterDown, MasterSilent, ReturnsNotKept, BalancerDown,
					BalancerSilent, MasterConfig, KeyUnreadable, PortInUse, StorageUnusable, DiskFull,
					ProgramMissing, AccountMissing}, 3 * time.Second},
			{BalancerSilent, Warning, "the load balancer does not answer on its admin socket",
				"applianced logs lb; applianced restart lb",
				[]Code{NodeRemoved, SetupStopped, BalancerDown, PortInUse, ProgramMissing, AccountMissing}, 3 * time.Second},
			{VirtualUnable, Warning, "this node cannot take the virtual address %s",
				"fix the cause; it is tried again by itself. Another address: applianced virtual-address ADDRESS",
				[]Code{NodeRemoved, SetupStopped}, 5 * time.Second},
			{SourceLimited, Warning, "the load balancer refuses connections of a source",
				"applianced lb status lists the sources; if it is no site of yours: block it in front of the node",
				[]Code{NodeRemoved, SetupStopped}, 0},
			{ClockSkew, Warning, "the clocks of this node and of %s differ",
				"applianced ping %s; check the time service on both: timedatectl", nil, 20 * time.Second},
			{InsecureOption, Warning, "option %s is on: any minion can sign in",
				"switch it off when the roll-out is done", nil, 0},
			{ChildrenAsRoot, Notice, "%s runs as root",
				"create the account named under users in appliance.yaml", nil, 0},
			{SecretWeak, Warning, "the cluster's secret is easy to guess",
				"applianced secret rotate gives the cluster another one; nothing stops meanwhile", nil, 0},
			{AccountMissing, Fatal, "%s is not started: its account does not exist",
				"correct users in appliance.yaml, or bring the account back: systemd-sysusers, then systemctl restart applianced",
				nil, 0},
			{MemoryUnbounded, Notice, "%s has no bound on its memory",
				"applianced logs; limits in appliance.yaml", nil, 0},
			{NobodyCanLogIn, Notice, "no administrator can log in to this node",
				"give the machine answers with admin.ssh_keys or admin.password and set it up anew: Factory reset in its boot menu",
				nil, 0},
			{ClockUnsynced, Notice, "the clock is not synchronised", "check the time service: timedatectl",
				nil, 30 * time.Second},
			{DescriptorsShort, Warning, "few file descriptors are left for minions",
				"raise LimitNOFILE of the unit", nil, 0},
			{SupervisorStopped, Fatal, "the supervisor is stopping", "", nil, 0},
			{AddressMissing, Fatal, "this machine does not have its address %s",
				"give it back: a reservation in DHCP, or a fixed address; all goes on by itself then. If the node is to have another one for good: applianced remove NODE on another node, applianced reset --yes here, and let it join with that; those in front and master of appliance.yaml are corrected there. If this is a copy of the node: applianced reset --yes",
				[]Code{NotTheNode}, 3 * time.Second},
			{PortRefused, Fatal, "nothing can listen on address %s",
				"fix what the cause names; it is tried again by itself", nil, 0},
			{NetworkDown, Fatal, "this node has no network",
				"look at the cable, the virtual switch or the bond: ip link, networkctl; all goes on by itself then",
				nil, 3 * time.Second},
		}...)

	for i := range all {
		if slices.Contains(needNetwork(), all[i].Code) {
			all[i].DependsOn = append(slices.Clip(all[i].DependsOn), AddressMissing, PortRefused, NetworkDown)
		}
	}

	slices.SortFunc(all, func(a, b Kind) int { return cmp.Compare(a.Code, b.Code) })
	return all
}

// needNetwork are the problems that follow when a node does not have its address, may not listen
// on it, or has no network.
func needNetwork() []Code {
	return []Code{
		NodeMasterDown, NodeUnreachable, NodeNotServing, NodeAPIDown, VirtualNobody, MastersApart, ArbiterUnwell, RemovalHalf,
		MasterDown, MasterSilent, MasterUnreported, MasterProblem, APIDown, APIFront, BalancerDown, BalancerSilent, NoBackend, VirtualUnable,
		VolumeAbsent, VolumeHangs, VolumeNoQuorum, StorageDaemon, BrickDown, HealStuck, StorageBlocked, StoragePeerAway, MirrorBehind, ClockSkew,
	}
}

// guardKinds are about what guards a machine made from the image.
func guardKinds() []Kind {
	return []Kind{
		{
			Code:     FirewallWrong,
			Severity: Warning,
			Visible:  10 * time.Second,
			Title:    "the firewall's rules are not those of this node",
			Next:     "sudo systemctl restart nftables loads them; if they are gone again, find the program that takes them away. Rules of your own belong into /etc/nftables.d",
		},
		{
			Code: FirewallOwn, Severity: Warning,
			Title: "the firewall leaves out your rules in %s",
			Next:  "correct the file; it is tried again every minute. A name in it has to be known to a name server when it is loaded: an address is safer",
		},
		{
			Code: ProfileOff, Severity: Warning,
			Title: "the AppArmor profile %s is not enforced",
			Next:  "sudo systemctl reload apparmor loads it, or says what is wrong with it; sudo aa-status shows all",
		},
		{
			Code: SSHConfig, Severity: Warning,
			Title: "sshd refuses its configuration: its next start fails, and nobody can log in by SSH then",
			Next:  "correct the file that the cause names, most often in /etc/ssh/sshd_config.d; sudo sshd -t looks at it. A name in ListenAddress has to be known whenever sshd starts: an address is safer",
		},
		{
			Code:     GuardsUnseen,
			Severity: Warning,
			Visible:  2 * time.Minute,
			Title:    "nothing looks at what guards this node (%s)",
			Next:     "systemctl status saltern-firewall.timer saltern-guards.timer, and the services of the same names",
		},
		{
			Code:      TimeAway,
			Severity:  Notice,
			DependsOn: []Code{ClockUnsynced},
			Visible:   10 * time.Minute,
			Title:     "no time server answers",
			Next:      "name one that the node reaches (network.ntp in the answers, or DHCP); chronyc -n sources shows them",
		},
		{
			Code: JournalConfig, Severity: Notice,
			Title: "journald leaves out a line of %s",
			Next:  "correct the file, then: sudo systemctl restart systemd-journald",
		},
	}
}

// upkeepKinds are those of what is done now and then.
func upkeepKinds() []Kind {
	return []Kind{
		{BackupLate, Warning, "the scheduled backup is not made",
			"fix what the cause names; it is tried again by itself, at once with: applianced backup now; applianced backup status shows all of it",
			[]Code{NodeRemoved, SetupStopped, StorageUnusable, VolumeAbsent, VolumeHangs, VolumeStopped,
				VolumeNoQuorum}, time.Minute},
		{SystemOld, Notice, "the system of this node is older than three months",
			"build a newer version of the image and upgrade to it (docs/updates.md): applianced upgrade --all FILE",
			nil, 0},
		{SystemFixed, Notice, "this node takes no upgrade",
			"put the public key of who builds the image into /etc/saltern/upgrade-keys/NAME.pem on each node, or build the image with SIGN= (docs/updates.md)",
			nil, 0},
		{SystemNewer, Notice, "there is a newer version of the system",
			"upgrade.window installs it by itself, where it is set; else, and at once: fetch it from upgrade.url, then: applianced upgrade --all FILE",
			nil, 0},
		{SystemUnasked, Notice, "whether there is a newer version of the system cannot be told",
			"applianced upgrade check says why; correct upgrade.url, or the proxy and firewall in front",
			nil, 0},
		{SystemFrozen, Notice, "upgrade.url has no newer version, which was promised",
			"look at what who builds it has published; if there is something newer, the mirror is stopped, or somebody holds it back: fetch it from elsewhere, then: applianced upgrade --all FILE",
			nil, 0},
		{UpgradeStopped, Warning, "the upgrade to version %s by the window has stopped",
			"look at the node that the cause names: applianced status, applianced upgrade status there. Version %s is not tried again by itself: fix it and run applianced upgrade --all FILE, or put a newer version at upgrade.url",
			nil, 0},
		{UpgradeUnmade, Warning, "the upgrade window cannot install a newer version",
			"fix what the cause names; it is tried again while the window is open, and in the next one", nil,
			0},
		{UpgradeUnfinished, Notice, "the upgrade window closed before all nodes had version %s",
			"the next window goes on by itself; at once: applianced upgrade --all FILE. Make upgrade.window longer if this happens again",
			nil, 0},
		{UpgradeGaveUp, Notice, "this node went back from version %s by itself",
			"journalctl -b -1 may say why; install a newer version, or the same again: applianced upgrade FILE",
			nil, 0},
	}
}

// gitKinds are those of git repositories.
func gitKinds() []Kind {
	hiding := []Code{MasterDown, DiskFull, StorageUnusable}
	return []Kind{
		{GitPillars, Warning, "git pillars cannot be fetched",
			"applianced git shows which; look at the disk of the master's cache directory, and at the program git",
			hiding, 5 * time.Second},
		{GitFiles, Warning, "files from git cannot be fetched",
			"applianced git shows which; look at the disk of the master's cache directory, and at the program git",
			hiding, 5 * time.Second},
		{GitAway, Warning, "a git remote is unreachable",
			"check its URL, name, port, firewall and proxy; it is tried again by itself, at once with: applianced git fetch",
			hiding, 5 * time.Second},
		{GitLogin, Warning, "a git remote refuses the login",
			"correct its user, password or token, or key, then: applianced config apply", hiding,
			5 * time.Second},
		{GitHostKey, Warning, "a git remote is not trusted",
			"compare its host key or certificate with what its administrator says, then put it into known_hosts or the system's certificates",
			hiding, 5 * time.Second},
		{GitRefGone, Warning, "a git remote lacks a branch or tag",
			"push the branch or tag, or correct the option that names it", hiding, 5 * time.Second},
		{GitSize, Warning, "a git remote is too large",
			"narrow refspecs, take large files out of the repository, or raise saltern_git_max_size", hiding,
			5 * time.Second},
	}
}

// Problem is one thing that is wrong now.
type Problem struct {
	Code      Code      `json:"code"`
	Severity  Severity  `json:"severity"`
	Title     string    `json:"title"`
	Cause     string    `json:"cause,omitempty"` // what was observed, with names and numbers
	Next      string    `json:"next,omitempty"`
	Subject   string    `json:"subject,omitempty"` // what it is about: a path, an address, a node
	Since     time.Time `json:"since"`
	DependsOn []Code    `json:"dependsOn,omitempty"`
	Hides     []Code    `json:"hides,omitempty"` // consequences that are true as well and not listed
}

// Finding is a problem as seen by one observation.
type Finding struct {
	Code    Code
	Subject string
	Cause   string
}

// Board remembers since when each problem has held, and decides which ones
// to show. It is not safe for concurrent use.
type Board struct {
	kinds map[Code]Kind
	since map[boardKey]time.Time
}

type boardKey struct {
	code    Code
	subject string
}

// maxProblems bounds what is listed; the mildest are dropped.
const maxProblems = 50

// NewBoard gives an empty board.
func NewBoard() *Board {
	b := &Board{kinds: map[Code]Kind{}, since: map[boardKey]time.Time{}}
	for _, k := range Kinds() {
		b.kinds[k.Code] = k
	}
	return b
}

// Update takes everything that is wrong at now and gives what to show:
// severe ones first, consequences of a shown cause left out. A finding that
// is missing from one update has ended.
func (b *Board) Update(now time.Time, found []Finding) []Problem {
	next := make(map[boardKey]time.Time, len(found))
	var held []Problem
	for _, f := range found {
		key := boardKey{f.Code, f.Subject}
		if _, twice := next[key]; twice {
			continue
		}

		since, ok := b.since[key]
		if !ok {
			since = now
		}

		next[key] = since
		k := b.kinds[f.Code]
		if now.Sub(since) < k.Visible {
			continue
		}

		held = append(held, Problem{
			Code:      f.Code,
			Severity:  k.Severity,
			Title:     fill(k.Title, f.Subject),
			Cause:     f.Cause,
			Next:      fill(k.Next, f.Subject),
			Subject:   f.Subject,
			Since:     since,
			DependsOn: k.DependsOn,
		})
	}

	b.since = next
	shown := hideConsequences(held)
	slices.SortStableFunc(shown, func(a, b Problem) int {
		return cmp.Or(cmp.Compare(rank(a.Severity), rank(b.Severity)), cmp.Compare(a.Code, b.Code),
			cmp.Compare(a.Subject, b.Subject))
	})

	return shown[:min(len(shown), maxProblems)]
}

func hideConsequences(held []Problem) []Problem {
	type key struct {
		code Code
		node string
	}

	// A node that is away explains nothing about another one.
	of := func(c Code, subject string) key {
		if c != NodeUnreachable && c != NodeNotServing {
			subject = ""
		}
		return key{c, subject}
	}

	present := map[key]bool{}
	for _, p := range held {
		present[of(p.Code, p.Subject)] = true
	}

	hiddenBy := map[key][]Code{}
	shown := []Problem{}
	for _, p := range held {
		hidden := false
		for _, d := range p.DependsOn {
			if k := of(d, p.Subject); present[k] {
				hidden = true
				if !slices.Contains(hiddenBy[k], p.Code) {
					hiddenBy[k] = append(hiddenBy[k], p.Code)
				}
			}
		}

		if !hidden {
			shown = append(shown, p)
		}
	}

	for i := range shown {
		shown[i].Hides = hiddenBy[of(shown[i].Code, shown[i].Subject)]
	}

	return shown
}

// ofMaster tells of faults that keep this node's own master from serving, and
// nothing else.
func ofMaster(p Problem) bool {
	return p.Severity == Fatal && slices.Contains(
		[]Code{MasterDown, MasterConfig, MasterSilent, ReturnsNotKept, KeyUnreadable, PortInUse, PortRefused,
			ProgramMissing, AccountMissing},
		p.Code)
}

// Serves reports whether minions can work with this node: it answers, and no problem says otherwise. All
// that calls a node ready, serving or well asks this.
func (d Document) Serves() bool {
	return d.ServingSince != nil && (d.Health == Healthy || d.Health == Degraded)
}

// ServesItself reports whether minions can work with this node, and it is not the masters of
// others alone that answer them at its front: its own master answers, and the shared volume is
// mounted here. What is to be known good (a version of the system), and what allows another
// node to restart, asks this.
func (d Document) ServesItself() bool {
	if !d.Serves() {
		return false
	}
	for _, n := range d.Nodes {
		if n.This {
			return n.MasterAnswers() && !slices.Contains([]string{"waiting", "hangs", "down", "full"}, n.Storage)
		}
	}
	return false
}

// MasterAnswers reports whether the node's own master answers, or it has none. What is not
// known of another node counts as good.
func (n Node) MasterAnswers() bool {
	return slices.Contains([]string{"ok", "off", "-", "?", ""}, n.Master)
}

// ServedElsewhere is Worst for a node whose minions are answered, by the
// masters of other nodes if not by its own: what is wrong with its own one
// alone degrades it then.
func ServedElsewhere(problems []Problem) Health {
	rest := slices.DeleteFunc(slices.Clone(problems), ofMaster)
	h := Worst(rest)
	if h == Healthy && len(rest) < len(problems) {
		h = Degraded
	}
	return h
}

// Worst gives the health that follows from the problems shown.
func Worst(problems []Problem) Health {
	h := Healthy
	for _, p := range problems {
		switch {
		case p.Code == NotConfigured:
			return Unconfigured
		case p.Severity == Fatal:
			h = NotServing
		case p.Severity == Warning && h == Healthy:
			h = Degraded
		}
	}
	return h
}

func rank(s Severity) int { return slices.Index([]Severity{Fatal, Warning, Notice}, s) }

func fill(format, subject string) string { return strings.ReplaceAll(format, "%s", subject) }
