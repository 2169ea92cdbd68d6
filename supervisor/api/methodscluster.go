package api

import (
	"saltern/internal/rpc"
	"saltern/supervisor/options"
	"saltern/supervisor/setup"
	"saltern/supervisor/upgrade/rollout"
)

// Nodes of the cluster.

// ShowJoinString returns the join string, with which another node joins.
var ShowJoinString = rpc.Add(Table, rpc.Method[rpc.None, JoinLine]{Row: rpc.Row{
	Route:   "GET /v1/cluster/join-string",
	Takes:   answerTakes,
	Needs:   errAlone,
	Audit:   "secret.show",
	Command: "applianced join-string",
}})

// DrainNode stops sending new minions to Node. If End is set, it allows new minions again.
var DrainNode = rpc.Add(Table, rpc.Method[ClusterRequest, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/cluster/drain",
		Bound:   maxBody,
		Takes:   changeTakes,
		Needs:   errAlone,
		Audit:   "node.drain",
		Command: "applianced drain",
	},
	Subject: func(q ClusterRequest) rpc.Subject { return q.subject("node.undrain") },
})

// LeaveCluster removes this node from the cluster.
var LeaveCluster = rpc.Add(Table, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
	Route:   "POST /v1/cluster/leave",
	Takes:   changeTakes,
	Needs:   errAlone,
	Audit:   "node.leave",
	Command: "applianced leave",
}})

// RemoveNode removes Node from the cluster. If Force is set, it removes the node even if the node
// answers.
var RemoveNode = rpc.Add(Table, rpc.Method[ClusterRequest, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/cluster/remove",
		Bound:   maxBody,
		Takes:   changeTakes,
		Needs:   errAlone,
		Audit:   "node.remove",
		Command: "applianced remove",
	},
	Subject: func(q ClusterRequest) rpc.Subject { return q.subject("") },
})

// PingNode tries all connections that this node needs to Node.
var PingNode = rpc.Add(Table, rpc.Method[ClusterRequest, []setup.Check]{Row: rpc.Row{
	Route:     "POST /v1/cluster/ping",
	Bound:     maxBody,
	Takes:     changeTakes,
	Needs:     errAlone,
	Unaudited: onlyLooks,
	Command:   "applianced ping",
}})

// RecoverNode starts a recovery, which makes this node a new cluster that has no other node. Unless
// Force is set, RecoverNode returns an error if another node answers.
var RecoverNode = rpc.Add(Table, rpc.Method[ClusterRequest, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/cluster/recover",
		Bound:   maxBody,
		Takes:   changeTakes,
		Needs:   errAlone,
		Audit:   "cluster.recover",
		GoesOn:  true,
		Command: "applianced recover",
	},
	Subject: func(q ClusterRequest) rpc.Subject { return q.subject("") },
})

// ReadRecovery returns the progress of a recovery.
var ReadRecovery = rpc.Add(Table, rpc.Method[rpc.None, Recovering]{Row: rpc.Row{
	Route:     "GET /v1/cluster/recover",
	Takes:     answerTakes,
	Needs:     errNew,
	Unaudited: onlyLooks,
	Command:   "applianced recover",
}})

// RotateSecret replaces the secret of the cluster. After an error it may be called again. If Force
// is set, it does not wait for unreachable nodes; the answer names them.
var RotateSecret = rpc.Add(Table, rpc.Method[ClusterRequest, Rotated]{
	Row: rpc.Row{
		Route:   "POST /v1/cluster/rotate",
		Bound:   maxBody,
		Takes:   changeTakes,
		Needs:   errAlone,
		Audit:   "secret.rotate",
		Command: "applianced secret rotate",
	},
	Subject: func(q ClusterRequest) rpc.Subject { return q.subject("") },
})

// TakeClusterKey replaces the cluster's key by the prepared key, whose hash must be Key. The
// masters load the new key when they start. After an error TakeClusterKey may be called again.
var TakeClusterKey = rpc.Add(Table, rpc.Method[ClusterRequest, rpc.None]{Row: rpc.Row{
	Route:   "POST /v1/cluster/key",
	Bound:   maxBody,
	Takes:   changeTakes,
	Needs:   errAlone,
	Audit:   "cluster.key",
	Command: "applianced cluster-key take",
}})

// ReadClusterKeys returns the cluster's key, and the prepared new key if there is one.
var ReadClusterKeys = rpc.Add(Table, rpc.Method[rpc.None, ClusterKeys]{Row: rpc.Row{
	Route:     "GET /v1/cluster/key",
	Takes:     answerTakes,
	Needs:     errAlone,
	Unaudited: onlyLooks,
	Command:   "applianced cluster-key",
}})

// MakeClusterKey prepares a new key beside the cluster's present key, unless one is prepared
// already.
var MakeClusterKey = rpc.Add(Table, rpc.Method[rpc.None, ClusterKeys]{Row: rpc.Row{
	Route:   "POST /v1/cluster/newkey",
	Takes:   changeTakes,
	Needs:   errAlone,
	Audit:   "cluster.newkey",
	Command: "applianced cluster-key new",
}})

// The virtual address and restarts.

// CheckVirtual returns an error that says why the node may not have the virtual address.
var CheckVirtual = rpc.Add(Table, rpc.Method[rpc.None, rpc.None]{Row: rpc.Row{
	Route:     "GET /v1/fit",
	Takes:     answerTakes,
	Needs:     errAlone,
	Unaudited: onlyLooks,
	Command:   "applianced virtual-address",
}})

// SetVirtual changes the cluster's virtual address.
var SetVirtual = rpc.Add(Table, rpc.Method[VirtualRequest, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/cluster/virtual",
		Bound:   maxBody,
		Takes:   changeTakes,
		Needs:   errAlone,
		Audit:   "address.set",
		Command: "applianced virtual-address",
	},
	Subject: func(q VirtualRequest) rpc.Subject {
		if q.Address == nil {
			return rpc.Subject{}
		}
		return rpc.Subject{Object: *q.Address}
	},
})

// ReadTurn returns which node has the turn to restart.
var ReadTurn = rpc.Add(Table, rpc.Method[rpc.None, Turn]{
	Row: rpc.Row{
		Route:     "GET /v1/cluster/turn",
		Takes:     answerTakes,
		Unaudited: onlyLooks,
		Command:   "applianced reboot",
	},
	Absent: noTurn,
})

// ChangeTurn acquires the turn for this node, and drains the node. If End is set, it releases the
// turn. A refusal says which node has the turn, or why the cluster needs this node.
var ChangeTurn = rpc.Add(Table, rpc.Method[ClusterRequest, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/cluster/turn",
		Bound:   maxBody,
		Takes:   changeTakes,
		Needs:   errAlone,
		Audit:   "turn.take",
		Command: "applianced reboot",
	},
	Subject: func(q ClusterRequest) rpc.Subject { return q.subject("turn.give") },
})

// Rolling changes: all nodes take part, one after another.

// ApplyOptions starts a rolling change in which all nodes load the present options of the master.
var ApplyOptions = rpc.Add(Table, rpc.Method[ApplyRequest, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/options/apply",
		Bound:   maxBody,
		Takes:   answerTakes,
		Needs:   errNew,
		Audit:   "config.apply",
		GoesOn:  true,
		Command: "applianced config apply",
	},
	Subject: func(q ApplyRequest) rpc.Subject { return rpc.Subject{Detail: forced(q.Force), Dry: q.Dry} },
})

// ReadOptionsRoll returns the progress of ApplyOptions.
var ReadOptionsRoll = rpc.Add(Table, rpc.Method[rpc.None, options.Progress]{
	Row: rpc.Row{
		Route:     "GET /v1/options/apply",
		Takes:     answerTakes,
		Unaudited: onlyLooks,
		Command:   "applianced config apply",
	},
	Absent: noRoll,
})

// UpgradeNodes starts a rollout of a version of the system to all nodes.
var UpgradeNodes = rpc.Add(Table, rpc.Method[UpgradeRequest, rpc.None]{
	Row: rpc.Row{
		Route:   "POST /v1/upgrade",
		Bound:   maxBody,
		Takes:   answerTakes,
		Needs:   errNew,
		Audit:   "cluster.upgrade",
		GoesOn:  true,
		Command: "applianced upgrade",
	},
	Subject: func(q UpgradeRequest) rpc.Subject { return rpc.Subject{Dry: q.Dry} },
})

// ReadUpgrade returns the progress of UpgradeNodes.
var ReadUpgrade = rpc.Add(Table, rpc.Method[rpc.None, rollout.Progress]{
	Row: rpc.Row{
		Route:     "GET /v1/upgrade",
		Takes:     answerTakes,
		Unaudited: onlyLooks,
		Command:   "applianced upgrade",
	},
	Absent: noUpgrade,
})

// subject returns the object and the detail of the audit record of a change of the cluster. If
// [ClusterRequest.End] is set, the record's action is end.
func (q ClusterRequest) subject(end string) rpc.Subject {
	s := rpc.Subject{Object: q.Node, Detail: forced(q.Force)}
	if q.End {
		s.Action = end
	}
	return s
}

func forced(force bool) string {
	if force {
		return "with force"
	}
	return ""
}
