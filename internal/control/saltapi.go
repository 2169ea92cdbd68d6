package control

// APIServedOn begins the line in which salt-api --check says by a URL where the API
// would be served, for the supervisor to read.
const APIServedOn = "it is served on "

// ConsoleServedOn begins the line in which it says the same of its console, if that is on.
const ConsoleServedOn = "its console is at "

// APIBehind begins the line in which it says on which address and port it serves the
// load balancers, if it does; only they reach the API then.
const APIBehind = "the load balancers reach it on "
