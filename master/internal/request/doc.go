// Package request answers what arrives on the request port (4506).
//
// Data flow: payload bytes → size and shape are checked → a clear load goes
// to the sign-in or to a local method; an encrypted one is opened with the
// session key that its outer id selects, its token is verified, and the
// method named by "cmd" is called with the sender's proven id → the result is
// packed and sealed with the key that opened the request.
//
// One Table lists every method with what it requires; a method that is not in
// it cannot be called. The order of the checks and the literal refusals are
// those of the Python master (salt/channel/server.py ReqServerChannel,
// salt/master.py MWorker), because minions act on them: any short text answer
// makes a minion sign in again and repeat its request.
package request
