"""frostline"""
