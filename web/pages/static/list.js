// What a list can do beside being read.
