package control

import "saltern/internal/rpc"

// ErrNoSuchMember matches refusals with [rpc.CodeNoSuchMember].
var ErrNoSuchMember error = &rpc.Error{Code: rpc.CodeNoSuchMember, Text: "no such member of the cluster"}

// ErrNoSuchRemote matches refusals with [rpc.CodeNoSuchRemote].
var ErrNoSuchRemote error = &rpc.Error{Code: rpc.CodeNoSuchRemote, Text: "no such git remote is configured"}
