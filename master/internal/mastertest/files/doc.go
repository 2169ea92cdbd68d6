// Package files tests what a master serves from directories and git repositories, as files and as
// pillars.
package files
