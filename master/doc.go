// Package master is the composition root of the Salt master: it creates the parts and connects
// them, and leaves almost all decisions to them.
//
//	port 4506 → zmtp.Router → request.Server ─┬─ auth.Service        sign-in, session keys
//	                                          ├─ minion.Service      requests of signed-in minions
//	                                          └─ local.Service       publish, wheel, runner, tokens
//	publish   → eauth → launch.Launcher (target, acl) → jobs → publish.Publisher → zmtp.Pub → port 4505
//	_return   → jobs (durable) → event.Bus → event.Server (Salt's sockets) → salt, salt-run
//	_pillar   → pillar.Compiler (and its renderers) → cache → private reply
//
// Every part gets what it needs as arguments. Only this package imports all of them, and only
// cmd/salt-master imports this package.
package master
