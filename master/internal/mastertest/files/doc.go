// Package files tests what a master serves from folders and git repositories, as files and as
// pillars.
package files
