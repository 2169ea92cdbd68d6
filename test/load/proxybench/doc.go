// Command proxybench puts TCP load through a proxy and measures what the proxy
// did with it and what that cost. It plays the clients and the backends; what
// lies between is any program that listens.
//
// `suite` runs scenarios on several proxies in turn, each with new processes,
// and writes one line of JSON for each run. `backend` is what it starts beside
// itself to answer. See the README of the folder above for the scenarios and
// their limits.
package main
