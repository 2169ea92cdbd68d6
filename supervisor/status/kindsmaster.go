package status

import "time"

// masterKinds returns the kinds of problems of the master itself.
func masterKinds() []Kind {
	return []Kind{
		{
			Code:     MasterDown,
			Severity: Fatal,
			Title:    "salt-master is not running",
			Next:     "applianced logs master",
			DependsOn: []Code{
				NodeRemoved, SetupStopped, MasterConfig, KeyUnreadable, PortInUse, StorageUnusable,
				DiskFull, ProgramMissing, AccountMissing, VolumeAbsent, VolumeStopped, VolumeNoQuorum,
			},
		},

		{
			Code:     MasterConfig,
			Severity: Fatal,
			Title:    "salt-master's configuration is wrong",
			Next:     "fix the file named; the master starts by itself then",
		},

		{
			Code:     MasterSilent,
			Severity: Fatal,
			Title:    "salt-master does not answer",
			Next:     "applianced logs master; applianced restart master",
			DependsOn: []Code{
				MasterDown, MasterConfig, KeyUnreadable, PortInUse, StorageUnusable, DiskFull,
				ProgramMissing, AccountMissing,
			},
		},

		{
			Code:     KeyUnreadable,
			Severity: Fatal,
			Subject:  "FILE",
			Title:    "key file %s cannot be used",
			Next:     "give it back its owner and mode, or restore it from a backup",
		},

		{
			Code:      PortInUse,
			Severity:  Fatal,
			Subject:   "ADDRESS",
			Title:     "address %s is in use by another program",
			Next:      "stop that program, or choose another port in appliance.yaml",
			DependsOn: []Code{NotTheNode},
		},

		{
			Code:      PillarErrors,
			Severity:  Warning,
			Title:     "pillars do not render",
			Next:      "applianced logs master; salt-run pillar.show_pillar MINION",
			DependsOn: []Code{StorageUnusable},
		},

		{
			Code:     PillarsUnanswered,
			Severity: Warning,
			Title:    "salt-master cannot make pillars now",
			Next: "nothing, if it ends: minions keep the pillar they have and ask again; " +
				"else look at what the cause names, and at applianced logs master",
			DependsOn: []Code{MasterDown, StorageUnusable},
		},

		{
			Code:      PillarCheck,
			Severity:  Warning,
			Title:     "a pillar file or an ext_pillar is not made in the fast way",
			Next:      "nothing for the minions: they get what Salt gives; please report it, with the file or the command's output if you can",
			DependsOn: []Code{MasterDown},
		},

		{
			Code:     PostgresAway,
			Severity: Warning,
			Title:    "PostgreSQL does not get the jobs of this node",
			Next: "fix what the cause names; records wait on this node's disk and are written by themselves. " +
				"More of them can wait with a larger spool of saltern_postgres",
			DependsOn: []Code{MasterDown},
		},

		{
			Code:     PostgresLacks,
			Severity: Warning,
			Title:    "PostgreSQL lacks jobs of this node",
			Next: "look at what the log names (applianced logs master); the job cache and the history of the " +
				"nodes have these returns",
			DependsOn: []Code{MasterDown},
		},

		{
			Code:     SavedUnreadable,
			Severity: Warning,
			Title:    "saved targets, jobs and schedules cannot be read",
			Next: "do what the cause names; if the file is lost, salt-run saved.export on another node, and saved.import, " +
				"or restore a backup",
			DependsOn: []Code{MasterDown, StorageUnusable},
			Visible:   5 * time.Second,
		},

		{
			Code:     ReactionsLost,
			Severity: Warning,
			Title:    "events did not react",
			Next: "look at what the runners of reactions wait for (applianced logs master); " +
				"reactor_worker_threads has more of them at work",
			DependsOn: []Code{MasterDown},
		},

		{
			Code:     ProgramMissing,
			Severity: Fatal,
			Subject:  "FILE",
			Title:    "program %s is missing",
			Next:     "install it again, or set programs in appliance.yaml",
		},

		{
			Code:     ReturnsNotKept,
			Severity: Fatal,
			Title:    "salt-master cannot keep jobs and returns",
			Next: "fix what the cause names; it serves again by itself. " +
				"Meanwhile other masters serve its minions, and minions send their returns again for a while",
			DependsOn: []Code{MasterDown, DiskFull, StorageUnusable},
		},

		{
			Code:      MasterProblem,
			Severity:  Warning,
			Subject:   "WHAT",
			Title:     "salt-master has trouble: %s",
			Next:      "applianced logs master",
			DependsOn: []Code{MasterDown, DiskFull, StorageUnusable},
			Visible:   5 * time.Second,
		},

		{
			Code:      MasterUnreported,
			Severity:  Warning,
			Title:     "salt-master does not report how it is",
			Next:      "applianced logs master; look at its cache directory",
			DependsOn: []Code{MasterDown, MasterSilent, DiskFull, StorageUnusable},
			Visible:   5 * time.Second,
		},

		{
			Code:      MasterLastGood,
			Severity:  Warning,
			Title:     "salt-master runs with its last good options",
			Next:      "fix what the cause names; then: applianced config apply",
			DependsOn: []Code{MasterDown},
		},

		{
			Code:     PythonPackages,
			Severity: Warning,
			Title:    "Python packages cannot be used on this node",
			Next: "fix what the cause names: applianced python add brings another version, " +
				"applianced python remove takes one out; it is tried again by itself",
			DependsOn: []Code{DiskFull, StorageUnusable},
			Visible:   15 * time.Second,
		},

		{
			Code:     AuditLost,
			Severity: Warning,
			Title:    "what is done on this node is not in its audit record",
			Next: "fix what the cause names, most often by making room; " +
				"it is tried again by itself, and the record says how much is missing",
			DependsOn: []Code{DiskFull, StorageUnusable},
			Visible:   15 * time.Second,
		},
	}
}

// apiKinds returns the kinds of problems of Salt's API.
func apiKinds() []Kind {
	return []Kind{
		{
			Code:     APIDown,
			Severity: Warning,
			Title:    "Salt's API is not served by this node",
			Next: "fix what the cause names, it is tried again by itself; then applianced logs api; " +
				"applianced restart api",
			DependsOn: []Code{
				NodeRemoved, SetupStopped, MasterDown, MasterConfig, DiskFull, StorageUnusable,
				AccountMissing,
			},
			Visible: 5 * time.Second,
		},

		{
			Code:     APIFront,
			Severity: Warning,
			Title:    "the load balancer of this node cannot reach its salt-api",
			Next: "fix what the cause names: ss -ltnp says which program has a port; " +
				"front.api_port and rest_cherrypy may name the same one; " +
				"0 in front.api_port leaves the API to salt-api alone",
			DependsOn: []Code{
				NodeRemoved, SetupStopped, APIDown, MasterDown, MasterSilent, ReturnsNotKept,
				MasterConfig, BalancerDown, BalancerSilent, DiskFull, StorageUnusable, AccountMissing,
			},
			Visible: 30 * time.Second,
		},
	}
}

// gitKinds returns the kinds of problems of git repositories.
func gitKinds() []Kind {
	hiding := []Code{MasterDown, DiskFull, StorageUnusable}
	return []Kind{
		{
			Code:     GitPillars,
			Severity: Warning,
			Title:    "git pillars cannot be fetched",
			Next: "applianced git shows which; look at the disk of the master's cache directory, " +
				"and at the program git",
			DependsOn: hiding,
			Visible:   5 * time.Second,
		},

		{
			Code:     GitFiles,
			Severity: Warning,
			Title:    "files from git cannot be fetched",
			Next: "applianced git shows which; look at the disk of the master's cache directory, " +
				"and at the program git",
			DependsOn: hiding,
			Visible:   5 * time.Second,
		},

		{
			Code:     GitAway,
			Severity: Warning,
			Title:    "a git remote is unreachable",
			Next: "check its URL, name, port, firewall and proxy; " +
				"it is tried again by itself, at once with: applianced git fetch",
			DependsOn: hiding,
			Visible:   5 * time.Second,
		},

		{
			Code:      GitLogin,
			Severity:  Warning,
			Title:     "a git remote refuses the login",
			Next:      "correct its user, password or token, or key, then: applianced config apply",
			DependsOn: hiding,
			Visible:   5 * time.Second,
		},

		{
			Code:     GitHostKey,
			Severity: Warning,
			Title:    "a git remote is not trusted",
			Next: "compare its host key or certificate with what its administrator says, " +
				"then put it into known_hosts or the system's certificates",
			DependsOn: hiding,
			Visible:   5 * time.Second,
		},

		{
			Code:      GitRefGone,
			Severity:  Warning,
			Title:     "a git remote lacks a branch or tag",
			Next:      "push the branch or tag, or correct the option that names it",
			DependsOn: hiding,
			Visible:   5 * time.Second,
		},

		{
			Code:      GitSize,
			Severity:  Warning,
			Title:     "a git remote is too large",
			Next:      "narrow refspecs, take large files out of the repository, or raise saltern_git_max_size",
			DependsOn: hiding,
			Visible:   5 * time.Second,
		},
	}
}
