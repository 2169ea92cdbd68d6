// Command api sends salt-api a great many requests of all kinds and then asks whether
// anything was left behind: neither the memory of salt-api nor that of salt-master may
// grow, no descriptor may stay open, and each request must be answered as its kind is.
//
// It starts a salt-master, a salt-api and one scripted minion (test/load/swarm hold).
// Clients keep connections from addresses of their own and send, by weights: questions
// that are cheap (/, /stats), the lists of keys, minions and jobs, hooks, jobs by / and
// /run that the minion answers, a runner, log-ins and log-outs, broken bodies, requests
// without a token or with a wrong one, wrong passwords below the limits; others hang up
// in the middle of a body or while a job runs; readers of /events come and go.
//
// After each twentieth of the requests all pause, and memory, threads and descriptors of
// both programs are noted: the least that they held within two seconds, since the
// collector of garbage comes and goes. Exit code 1 when something differs.
// After SIGINT or SIGTERM it tells what it has seen until then. It needs no
// root. See `make soak-api`.
package main
