package control

// APIServedOn is the beginning of the line in which salt-api --check prints the URL of the API. The
// supervisor reads it.
const APIServedOn = "it is served on "

// ConsoleServedOn is the beginning of the line in which salt-api --check prints the URL of the
// console, if the console is on.
const ConsoleServedOn = "its console is at "

// APIBehind is the beginning of the line in which salt-api --check prints the address and port for
// the load balancers, if salt-api serves load balancers. In that case only they reach the API.
const APIBehind = "the load balancers reach it on "
