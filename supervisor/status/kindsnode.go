package status

import "time"

// nodeKinds returns the kinds of problems of the node itself: its set-up, accounts, addresses and
// limits.
func nodeKinds() []Kind {
	return []Kind{
		{
			Code:     NotConfigured,
			Severity: Fatal,
			Subject:  "/etc/saltern/appliance.yaml",
			Title:    "this node has not been set up",
			Next:     "applianced setup asks, or shows how it goes; or write %s",
		},

		{
			Code:     ConfigWrong,
			Severity: Fatal,
			Subject:  "/etc/saltern/appliance.yaml",
			Title:    "the configuration is wrong",
			Next:     "fix %s, then: sudo applianced config check",
		},

		{
			Code:     SetupStopped,
			Severity: Fatal,
			Title:    "the set-up of this node has stopped",
			Next:     "fix the cause, then: applianced setup retry; applianced setup shows all of it",
		},

		{
			Code:     ResetStopped,
			Severity: Fatal,
			Title:    "the reset of this node has stopped; it serves no more",
			Next:     "correct the cause, then: applianced reset --yes, which goes on erasing the keys and data of this node",
		},

		{
			Code:     SupervisorSilent,
			Severity: Fatal,
			Title:    "the supervisor of this node does not answer",
			Next:     "the reason: systemctl status applianced; start it again: systemctl restart applianced; without systemd: applianced run",
		},

		{
			Code:     InsecureOption,
			Severity: Warning,
			Subject:  "OPTION",
			Title:    "option %s is on: any minion can sign in",
			Next:     "switch it off when the roll-out is done",
		},

		{
			Code:     ChildrenAsRoot,
			Severity: Notice,
			Subject:  "PROGRAM",
			Title:    "%s runs as root",
			Next: "create the accounts that stand under \"users\" in appliance.yaml, give them their folders (docs/install.md), " +
				"then, on one node after the other: sudo systemctl restart applianced",
		},

		{
			Code:     AccountMissing,
			Severity: Fatal,
			Subject:  "PROGRAM",
			Title:    "%s is not started: its account does not exist",
			Next: "correct users in appliance.yaml, or bring the account back: " +
				"sudo systemd-sysusers, then sudo systemctl restart applianced",
		},

		{
			Code:     MemoryUnbounded,
			Severity: Notice,
			Subject:  "PROGRAM",
			Title:    "%s has no bound on its memory",
			Next:     "applianced logs; limits in appliance.yaml",
		},

		{
			Code:     NobodyCanLogIn,
			Severity: Notice,
			Title:    "no administrator can log in to this node",
			Next: "give the machine answers with admin.ssh_keys or admin.password and set it up again: " +
				"Factory reset in its boot menu",
		},

		{
			Code:     ClockUnsynced,
			Severity: Notice,
			Title:    "the clock is not synchronised",
			Next:     "check the time service: timedatectl",
			Visible:  30 * time.Second,
		},

		{
			Code:     DescriptorsShort,
			Severity: Warning,
			Title:    "few file descriptors are left for minions",
			Next:     "raise LimitNOFILE of the unit",
		},

		{
			Code:     SupervisorStopped,
			Severity: Fatal,
			Title:    "the supervisor is stopping",
			Next:     "",
		},

		{
			Code:     AddressMissing,
			Severity: Fatal,
			Subject:  "ADDRESS",
			Title:    "this machine does not have its address %s",
			Next: "give it back: a reservation in DHCP, or a fixed address; " +
				"all goes on by itself then. If the node is to have another one for good: " +
				"applianced remove NODE on another node, applianced reset --yes here, which erases the keys and data of this machine, and let it join with that; " +
				"those in front and master of appliance.yaml are corrected there. " +
				"If this is a copy of the node: applianced reset --yes",
			DependsOn: []Code{NotTheNode},
			Visible:   3 * time.Second,
		},

		{
			Code:     PortRefused,
			Severity: Fatal,
			Subject:  "ADDRESS",
			Title:    "nothing can listen on address %s",
			Next:     "fix what the cause names; it is tried again by itself",
		},

		{
			Code:     NetworkDown,
			Severity: Fatal,
			Title:    "this node has no network",
			Next: "look at the cable, the virtual switch or the bond: ip link, networkctl; " +
				"all goes on by itself then",
			Visible: 3 * time.Second,
		},
	}
}

// guardKinds returns the kinds of problems of the protection of a machine made from the image.
func guardKinds() []Kind {
	return []Kind{
		{
			Code:     FirewallWrong,
			Severity: Warning,
			Title:    "the firewall's rules are not those of this node",
			Next: "sudo systemctl restart nftables loads them; " +
				"if they are gone again, find the program that takes them away. " +
				"Rules of your own belong into /etc/nftables.d",
			Visible: 10 * time.Second,
		},

		{
			Code:     FirewallOwn,
			Severity: Warning,
			Subject:  "FILE",
			Title:    "the firewall leaves out your rules in %s",
			Next: "correct the file; it is tried again every minute. " +
				"A name in it has to be known to a name server when it is loaded: an address is safer",
		},

		{
			Code:     ProfileOff,
			Severity: Warning,
			Subject:  "PROFILE",
			Title:    "the AppArmor profile %s is not enforced",
			Next: "sudo systemctl reload apparmor loads it, or says what is wrong with it; " +
				"sudo aa-status shows all",
		},

		{
			Code:     SSHConfig,
			Severity: Warning,
			Title:    "sshd refuses its configuration: its next start fails, and nobody can log in by SSH then",
			Next: "correct the file that the cause names, most often in /etc/ssh/sshd_config.d; " +
				"sudo sshd -t looks at it. " +
				"A name in ListenAddress has to be known whenever sshd starts: an address is safer",
		},

		{
			Code:     GuardsUnseen,
			Severity: Warning,
			Subject:  "NAME",
			Title:    "nothing looks at what guards this node (%s)",
			Next: "systemctl status saltern-firewall.timer saltern-guards.timer, " +
				"and the services of the same names",
			Visible: 2 * time.Minute,
		},

		{
			Code:     TimeAway,
			Severity: Notice,
			Title:    "no time server answers",
			Next: "name one that the node reaches (network.ntp in the answers, or DHCP); " +
				"chronyc -n sources shows them",
			DependsOn: []Code{ClockUnsynced},
			Visible:   10 * time.Minute,
		},

		{
			Code:     JournalConfig,
			Severity: Notice,
			Subject:  "FILE",
			Title:    "journald leaves out a line of %s",
			Next:     "correct the file, then: sudo systemctl restart systemd-journald",
		},
	}
}

// upkeepKinds returns the kinds of problems of regular upkeep: backups and upgrades.
func upkeepKinds() []Kind {
	return []Kind{
		{
			Code:     BackupLate,
			Severity: Warning,
			Title:    "the scheduled backup is not made",
			Next: "fix what the cause names; it is tried again by itself, at once with: applianced backup now; " +
				"applianced backup status shows all of it",
			DependsOn: []Code{
				NodeRemoved, SetupStopped, StorageUnusable, VolumeAbsent, VolumeHangs, VolumeStopped,
				VolumeNoQuorum,
			},
			Visible: time.Minute,
		},

		{
			Code:     SystemOld,
			Severity: Notice,
			Title:    "the system of this node is older than three months",
			Next: "build a newer version of the image and upgrade to it (docs/updates.md): " +
				"applianced upgrade --all FILE",
		},

		{
			Code:     SystemFixed,
			Severity: Notice,
			Title:    "this node takes no upgrade",
			Next: "put the public key of who builds the image into /etc/saltern/upgrade-keys/NAME.pem on each node, " +
				"or build the image with SIGN= (docs/updates.md)",
		},

		{
			Code:     SystemNewer,
			Severity: Notice,
			Title:    "there is a newer version of the system",
			Next: "upgrade.window installs it by itself, where it is set; " +
				"else, and at once: fetch it from upgrade.url, then: applianced upgrade --all FILE",
		},

		{
			Code:     SystemUnasked,
			Severity: Notice,
			Title:    "whether there is a newer version of the system cannot be told",
			Next:     "applianced upgrade check says why; correct upgrade.url, or the proxy and firewall in front",
		},

		{
			Code:     SystemFrozen,
			Severity: Notice,
			Title:    "upgrade.url has no newer version, which was promised",
			Next: "look at what who builds it has published; " +
				"if there is something newer, the mirror is stopped, or somebody holds it back: " +
				"fetch it from elsewhere, then: applianced upgrade --all FILE",
		},

		{
			Code:     UpgradeStopped,
			Severity: Warning,
			Subject:  "VERSION",
			Title:    "the upgrade to version %s by the window has stopped",
			Next: "look at the node that the cause names: applianced status, applianced upgrade status there. " +
				"Version %s is not tried again by itself: " +
				"fix it and run applianced upgrade --all FILE, or put a newer version at upgrade.url",
		},

		{
			Code:     UpgradeUnmade,
			Severity: Warning,
			Title:    "the upgrade window cannot install a newer version",
			Next:     "fix what the cause names; it is tried again while the window is open, and in the next one",
		},

		{
			Code:     UpgradeUnfinished,
			Severity: Notice,
			Subject:  "VERSION",
			Title:    "the upgrade window closed before all nodes had version %s",
			Next: "the next window goes on by itself; " +
				"at once: applianced upgrade --all FILE. Make upgrade.window longer if this happens again",
		},

		{
			Code:     UpgradeGaveUp,
			Severity: Notice,
			Subject:  "VERSION",
			Title:    "this node went back from version %s by itself",
			Next: "journalctl -b -1 may say why; install a newer version, or the same again: " +
				"applianced upgrade FILE",
		},
	}
}
