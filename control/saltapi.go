package control

// APIServedOn begins the line in which salt-api --check says by a URL where the API
// would be served, for the supervisor to read.
const APIServedOn = "it is served on "

// ConsoleServedOn begins the line in which it says the same of its console, if that is on.
const ConsoleServedOn = "its console is at "
