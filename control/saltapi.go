package control

// APIServedOn begins the line in which salt-api --check says by a URL where the API
// would be served, for the supervisor to read.
const APIServedOn = "it is served on "
