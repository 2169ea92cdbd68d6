// Package request answers the requests that arrive on the request port (4506).
//
// Data flow: the server checks the size and shape of the payload. A clear load goes to the sign-in
// or to a local method. An encrypted load is decrypted with the session key of the minion whose id
// the envelope names. Its token is verified, and the method in the field "cmd" is called with the
// authenticated id. The server packs the result and encrypts it with the key that decrypted the
// request.
//
// One Table lists every method and its requirements; a method that is not in the Table cannot be
// called. The order of the checks and the exact texts of refusals are those of the Python master
// (salt/channel/server.py ReqServerChannel, salt/master.py MWorker), because minions depend on
// them: any short text answer makes a minion sign in again and repeat its request.
package request
