-- Run once, when PostgreSQL makes its data folder: flows and executions, watermarks, orders of the workers, and a target.
CREATE DATABASE service;
CREATE DATABASE service_state;
CREATE DATABASE west_orders;
CREATE DATABASE west_state;
CREATE DATABASE shop;
